-- Purpose: take tasks out of the allocation: one that is assigned is withdrawn (no process can
--   exist), one that may have a process is told to stop. Others are left as they are. The one
--   place for shrink, rollback, kill and requeue.
-- p_outcome is what its grow or start counts it as, where that is not decided yet (PROTOCOL 2).
-- Locks: task, ascending. The caller holds the jobs' locks. Raises: RZ422.
create or replace function xce.take_back_tasks(
    p_ids bigint[],
    p_actor text,
    p_cause text,
    p_now timestamptz,
    p_grace_s numeric default null,
    p_outcome text default 'failed',
    p_reason text default null,
    p_epoch bigint default null,
    p_actor_id bigint default null
)
returns xce.effects
language plpgsql
as $$
declare
    v_withdrawn bigint[];
    v_stopped bigint[];
    v_facts jsonb;
    v_rings text[];
begin
    -- A worker's claim takes only the task's lock, so the state is read under it and not before.
    perform from xce.task t where t.id = any (p_ids) order by t.id for no key update;
    select array_agg(t.id order by t.id) filter (where t.state = 'assigned'),
           array_agg(t.id order by t.id) filter (where t.state in ('starting', 'running')),
           array_agg(distinct 'xce_host_' || t.host_id)
      into v_withdrawn, v_stopped, v_rings
      from xce.task t
     where t.id = any (p_ids)
       and t.is_member;
    v_facts := jsonb_build_object('outcome', p_outcome, 'stop_cause', p_cause, 'reason', p_reason);
    if v_withdrawn is not null then
        perform xce.advance_tasks(v_withdrawn, 'withdraw', p_actor, p_now,
                                  array_fill(v_facts || '{"how": "withdrawn"}', array[cardinality(v_withdrawn)]),
                                  p_epoch, p_actor_id);
    end if;
    if v_stopped is not null then
        perform xce.advance_tasks(v_stopped, 'stop', p_actor, p_now, array(
            select v_facts || jsonb_build_object('stop_grace_s', coalesce(p_grace_s, j.grace_s))
              from unnest(v_stopped) with ordinality as i (id, ordinal)
              join xce.task t on t.id = i.id
              join xce.job j on j.id = t.job_id
             order by i.ordinal
        ), p_epoch, p_actor_id);
    end if;
    return row(coalesce(v_withdrawn, '{}'), '{}'::bigint[], coalesce(v_rings, '{}'))::xce.effects;
end;
$$;
