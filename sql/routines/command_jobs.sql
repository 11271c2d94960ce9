-- Purpose: kill, requeue, hold or release jobs, many calls in one transaction; `verb` says which.
-- Locks: job (ascending), request, task, host. Raises: RZ422.
create or replace function xce.command_jobs(p_calls jsonb, p_now timestamptz default null)
returns table (ordinal integer, answer jsonb)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
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
    perform from xce.resize_request r where r.job_id = any (v_jobs) and r.is_open order by r.id for no key update;
    v_now := coalesce(p_now, clock_timestamp());
    for v_call in select c.value, c.ordinality::integer - 1 as place
                    from jsonb_array_elements(p_calls) with ordinality as c
    loop
        ordinal := v_call.place;
        answer := xce.replay_key(v_call.value);
        if answer is null then
            select x.answer, x.effects into v_one from xce.command_job(v_call.value, v_now) x;
            answer := v_one.answer;
            v_out := xce.join_effects(v_out, v_one.effects);
        end if;
        return next;
    end loop;
    v_out := xce.join_effects(v_out, xce.settle_jobs(v_jobs, v_now));
    perform xce.free_hosts(v_out, v_now);
end;
$$;

-- Purpose: carry out one command on a job whose lock the caller holds.
-- Locks: request, task. Raises: RZ422.
create or replace function xce.command_job(p_call jsonb, p_now timestamptz)
returns table (answer jsonb, effects xce.effects)
language plpgsql
as $$
declare
    v_job xce.job;
    v_actor text := xce.caller_actor(p_call);
    v_user bigint := (p_call ->> 'user_id')::bigint;
begin
    effects := row('{}', '{}', '{}')::xce.effects;
    select j.* into v_job from xce.job j where j.id = (p_call ->> 'job_id')::bigint;
    answer := xce.refuse_command(v_job, p_call);
    if answer is not null then
        return next;
        return;
    end if;
    case p_call ->> 'verb'
        when 'kill' then
            effects := xce.kill_job(v_job, v_actor, v_user, p_call ->> 'reason', p_now, (p_call ->> 'grace_s')::numeric);
        when 'requeue' then
            effects := xce.stop_job(v_job.id, 'requeue', v_actor, 'requeue', 'requeued by ' || v_actor, p_now, v_user);
        when 'hold' then
            effects := xce.hold_job(v_job, v_actor, v_user, p_now);
        when 'release' then
            effects := xce.release_job(v_job, v_actor, v_user, p_now);
    end case;
    perform xce.keep_key(p_call, 202, 'job', v_job.id, p_now);
    answer := xce.acceptance(202, v_job.id, xce.distinct_rings((effects).rings || array['xce_plan', 'xce_watch']));
    return next;
end;
$$;

-- Purpose: kill one job: one that never ran ends at once, a running one stops, a stopping one stays
--   so (a waiting requeue is given up). p_grace_max_s bounds the job's own grace.
-- Locks: request, task. Raises: RZ422.
create or replace function xce.kill_job(
    p_job xce.job,
    p_actor text,
    p_actor_id bigint,
    p_reason text,
    p_now timestamptz,
    p_grace_max_s numeric default null
)
returns xce.effects
language plpgsql
as $$
declare
    v_requests bigint[];
    v_out xce.effects := row('{}', '{}', '{}')::xce.effects;
begin
    case p_job.state
        when 'pending' then
            v_requests := array(select r.id from xce.resize_request r where r.job_id = p_job.id and r.is_open order by r.id);
            v_out := xce.drop_requests(v_requests, 'job_ended', 'controller', p_now);
            perform xce.advance_job(p_job.id, 'ended', p_actor, p_now, p_reason, null, p_actor_id);
        when 'running' then
            v_out := xce.stop_job(p_job.id, 'stop', p_actor, p_reason, p_reason, p_now, p_actor_id,
                                  least(p_job.grace_s, p_grace_max_s));
        when 'stopping' then
            if p_job.is_requeue then
                update xce.job j set is_requeue = false, stop_cause = p_reason where j.id = p_job.id;
                perform xce.advance_job(p_job.id, 'stop', p_actor, p_now, p_reason, null, p_actor_id);
            end if;
            v_out := xce.hurry_tasks(p_job.id, p_grace_max_s);
    end case;
    return v_out;
end;
$$;

-- Purpose: shorten the grace of a stopping job's tasks to at most p_grace_max_s; null leaves it.
-- Locks: task. Raises: nothing.
create or replace function xce.hurry_tasks(p_job bigint, p_grace_max_s numeric)
returns xce.effects
language sql
as $$
    with hurried as (
        update xce.task t
           set stop_grace_s = p_grace_max_s
          from (select o.id from xce.task o
                 where o.job_id = p_job and o.is_open and o.state = 'stopping' and o.stop_grace_s > p_grace_max_s
                 order by o.id for no key update) o
         where t.id = o.id
        returning t.host_id
    )
    select row('{}', '{}', coalesce(array_agg(distinct 'xce_host_' || h.host_id), '{}'))::xce.effects from hurried h
$$;

-- Purpose: nothing new of a held job is placed; what is placed already gives its room back.
-- Locks: request. Raises: RZ422.
create or replace function xce.hold_job(p_job xce.job, p_actor text, p_actor_id bigint, p_now timestamptz)
returns xce.effects
language plpgsql
as $$
declare
    v_placed bigint[] := array(select r.id from xce.resize_request r
                                where r.job_id = p_job.id and r.is_open and r.state = 'placed' order by r.id);
begin
    if p_job.held then
        return row('{}', '{}', '{}')::xce.effects;
    end if;
    update xce.job j set held = true where j.id = p_job.id;
    perform xce.advance_job(p_job.id, 'hold', p_actor, p_now, 'held', null, p_actor_id);
    if cardinality(v_placed) > 0 then
        perform xce.advance_requests(v_placed, 'unplace', p_actor, p_now,
                                     array_fill('held'::text, array[cardinality(v_placed)]), p_actor_id => p_actor_id);
    end if;
    return row('{}'::bigint[], v_placed, array['xce_plan', 'xce_watch'])::xce.effects;
end;
$$;

-- Purpose: a hold ends; what waits may be placed again. Locks: none. Raises: RZ422.
create or replace function xce.release_job(p_job xce.job, p_actor text, p_actor_id bigint, p_now timestamptz)
returns xce.effects
language plpgsql
as $$
begin
    if p_job.held then
        update xce.job j set held = false where j.id = p_job.id;
        perform xce.advance_job(p_job.id, 'release', p_actor, p_now, null, null, p_actor_id);
    end if;
    return row('{}'::bigint[], '{}'::bigint[], array['xce_plan', 'xce_watch'])::xce.effects;
end;
$$;

-- Purpose: why a command is refused, or null. Locks: none.
create or replace function xce.refuse_command(p_job xce.job, p_call jsonb)
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
    if p_call ->> 'verb' = 'requeue' and p_job.state <> 'running' then
        return xce.refusal('job_not_running', format('job %s is %s; only a running one can be requeued', p_job.id, p_job.state),
                           jsonb_build_object('state', p_job.state));
    end if;
    return null;
end;
$$;
