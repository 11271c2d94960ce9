-- Purpose: begin a running job's end (PROTOCOL 22), in one transaction: pending and placed requests
--   are cancelled, committed ones fail, assigned tasks are withdrawn and the rest told to stop; a
--   stopping shrink runs on to `released`. p_event is `stop` or `requeue`.
-- Locks: request, task; the caller holds the job's lock. Raises: RZ422.
create or replace function xce.stop_job(
    p_job bigint,
    p_event text,
    p_actor text,
    p_cause text,
    p_reason text,
    p_now timestamptz,
    p_actor_id bigint default null,
    p_grace_s numeric default null
)
returns xce.effects
language plpgsql
as $$
declare
    v_out xce.effects;
    v_why text := case when p_event = 'requeue' then 'requeued' else 'job_ended' end;
    v_dropped bigint[];
    v_failed bigint[];
    v_members bigint[];
begin
    perform from xce.resize_request r where r.job_id = p_job and r.is_open order by r.id for no key update;
    select array_agg(r.id order by r.id) filter (where r.state in ('pending', 'placed')),
           array_agg(r.id order by r.id) filter (where r.state = 'committed')
      into v_dropped, v_failed
      from xce.resize_request r
     where r.job_id = p_job
       and r.is_open;
    select array_agg(t.id order by t.id) into v_members
      from xce.task t
     where t.job_id = p_job
       and t.is_open
       and t.is_member;
    update xce.job j
       set stop_cause = p_cause,
           is_requeue = p_event = 'requeue'
     where j.id = p_job;
    if v_members is not null then
        perform xce.raise_generation(array[p_job], true);
    end if;
    perform xce.advance_job(p_job, p_event, p_actor, p_now, p_reason, null, p_actor_id);
    v_out := xce.drop_requests(v_dropped, v_why, 'controller', p_now);
    if v_failed is not null then
        perform xce.advance_requests(v_failed, 'fail', 'controller', p_now,
                                     array_fill(v_why, array[cardinality(v_failed)]));
    end if;
    if v_members is not null then
        v_out := xce.join_effects(v_out, xce.take_back_tasks(
            v_members, case when p_actor in ('owner', 'operator') then p_actor else 'controller' end,
            p_cause, p_now, p_grace_s, p_actor_id => p_actor_id));
    end if;
    return xce.join_effects(v_out, row('{}', '{}', array['xce_watch'])::xce.effects);
end;
$$;
