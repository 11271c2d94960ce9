-- Purpose: kill jobs, many calls in one transaction: one that never ran ends at once, a running one
--   stops, a stopping one stays so (a waiting requeue is given up).
-- Locks: job (ascending), request, task, host. Raises: RZ422.
create or replace function xce.kill_jobs(p_calls jsonb, p_now timestamptz default null)
returns table (ordinal integer, answer jsonb)
language plpgsql
security definer
set search_path = pg_catalog
as $$
declare
    v_jobs bigint[];
    v_call record;
    v_one record;
    v_now timestamptz;
    v_out xce.effects := row('{}', '{}', '{}')::xce.effects;
begin
    select array_agg((c ->> 'job_id')::bigint) into v_jobs from jsonb_array_elements(p_calls) as c;
    perform from xce.job j where j.id = any (v_jobs) order by j.id for no key update;
    v_now := coalesce(p_now, clock_timestamp());
    for v_call in select c.value, c.ordinality::integer - 1 as place
                    from jsonb_array_elements(p_calls) with ordinality as c
    loop
        ordinal := v_call.place;
        answer := xce.replay_key(v_call.value);
        if answer is null then
            select x.answer, x.effects into v_one from xce.kill_job(v_call.value, v_now) x;
            answer := v_one.answer;
            v_out := xce.join_effects(v_out, v_one.effects);
        end if;
        return next;
    end loop;
    v_out := xce.join_effects(v_out, xce.settle_jobs(v_jobs, v_now));
    perform xce.free_hosts(v_out, v_now);
end;
$$;

-- Purpose: kill one job whose lock the caller holds.
-- Locks: request, task. Raises: RZ422.
create or replace function xce.kill_job(p_call jsonb, p_now timestamptz)
returns table (answer jsonb, effects xce.effects)
language plpgsql
as $$
declare
    v_job xce.job;
    v_actor text := xce.caller_actor(p_call);
    v_user bigint := (p_call ->> 'user_id')::bigint;
    v_reason text := p_call ->> 'reason';
    v_requests bigint[];
begin
    effects := row('{}', '{}', '{}')::xce.effects;
    select j.* into v_job from xce.job j where j.id = (p_call ->> 'job_id')::bigint;
    answer := xce.refuse_kill(v_job, p_call);
    if answer is not null then
        return next;
        return;
    end if;
    case v_job.state
        when 'pending' then
            v_requests := array(select r.id from xce.resize_request r where r.job_id = v_job.id and r.is_open order by r.id);
            effects := xce.drop_requests(v_requests, 'job_ended', 'controller', p_now);
            perform xce.advance_job(v_job.id, 'ended', v_actor, p_now, v_reason, null, v_user);
        when 'running' then
            effects := xce.stop_job(v_job.id, 'stop', v_actor, v_reason, v_reason, p_now, v_user);
        when 'stopping' then
            if v_job.is_requeue then
                update xce.job j set is_requeue = false, stop_cause = v_reason where j.id = v_job.id;
                perform xce.advance_job(v_job.id, 'stop', v_actor, p_now, v_reason, null, v_user);
            end if;
    end case;
    perform xce.keep_key(p_call, 202, 'job', v_job.id, p_now);
    answer := xce.acceptance(202, v_job.id, xce.distinct_rings((effects).rings || array['xce_plan', 'xce_watch']));
    return next;
end;
$$;

-- Purpose: why a kill is refused, or null. Locks: none.
create or replace function xce.refuse_kill(p_job xce.job, p_call jsonb)
returns jsonb
language plpgsql
stable
as $$
begin
    if p_job.id is null
       or (p_job.owner_id <> (p_call ->> 'user_id')::bigint and not (p_call ->> 'is_operator')::boolean) then
        return xce.refusal('not_found', 'there is no such job of yours', '{}');
    end if;
    if (p_call ->> 'if_match')::bigint <> p_job.generation then
        return xce.refusal('stale_generation', 'the allocation has changed; read the job again and decide anew',
                           jsonb_build_object('generation', p_job.generation));
    end if;
    if not p_job.is_open then
        return xce.refusal('job_ended', format('job %s has ended as %s', p_job.id, p_job.state),
                           jsonb_build_object('state', p_job.state, 'exit_code', p_job.exit_code));
    end if;
    return null;
end;
$$;
