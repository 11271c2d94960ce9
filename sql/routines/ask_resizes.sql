-- Purpose: judge and accept resize requests, many calls in one transaction, one answer each. A known
--   key outranks every refusal; a refusal changes nothing.
-- Locks: job (ascending), request (new), task (naming), idempotency key. Raises: RZ422.
create or replace function xce.ask_resizes(p_calls jsonb, p_now timestamptz default null)
returns table (ordinal integer, answer jsonb)
language plpgsql
security definer
set search_path = pg_catalog
as $$
declare
    v_call record;
    v_now timestamptz;
begin
    perform from xce.job j
      where j.id in (select (c ->> 'job_id')::bigint from jsonb_array_elements(p_calls) as c)
      order by j.id
        for no key update;
    v_now := coalesce(p_now, clock_timestamp());
    for v_call in select c.value, c.ordinality::integer - 1 as place
                    from jsonb_array_elements(p_calls) with ordinality as c
    loop
        ordinal := v_call.place;
        answer := coalesce(xce.replay_key(v_call.value), xce.ask_resize(v_call.value, v_now));
        return next;
    end loop;
end;
$$;

-- Purpose: judge and accept one resize of a job whose lock the caller holds.
-- Locks: request (new), task. Raises: RZ422.
create or replace function xce.ask_resize(p_call jsonb, p_now timestamptz)
returns jsonb
language plpgsql
as $$
declare
    v_job xce.job;
    v_answer jsonb;
    v_ask jsonb;
    v_id bigint;
begin
    select j.* into v_job from xce.job j where j.id = (p_call ->> 'job_id')::bigint;
    v_answer := xce.refuse_resize(v_job, p_call);
    if v_answer is not null then
        return v_answer;
    end if;
    if p_call ->> 'kind' = 'grow' then
        v_answer := coalesce(xce.refuse_unknown_hosts(p_call), xce.refuse_grow(v_job, (p_call ->> 'max')::integer));
        v_ask := p_call;
    else
        select s.refusal, s.ask into v_answer, v_ask from xce.judge_shrink(v_job, p_call) s;
    end if;
    if v_answer is not null then
        return v_answer;
    end if;
    v_id := xce.ask_request(v_job, v_ask, xce.caller_actor(p_call), (p_call ->> 'user_id')::bigint, p_now);
    update xce.task t
       set shrink_id = v_id
     where v_ask ->> 'kind' = 'shrink'
       and t.job_id = v_job.id
       and t.attempt = v_job.attempt
       and t.index in (select x::integer from jsonb_array_elements_text(v_ask -> 'task_indices') as x);
    perform xce.keep_key(p_call, 202, 'resize', v_id, p_now);
    return xce.acceptance(202, v_id, array['xce_plan', 'xce_watch']);
end;
$$;

-- Purpose: what forbids any resize of this job to this caller, or null. Locks: none.
create or replace function xce.refuse_resize(p_job xce.job, p_call jsonb)
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
    if not p_job.is_open or p_job.state = 'stopping' then
        return xce.refusal('job_ended', format('job %s is %s; submit a new one', p_job.id, p_job.state),
                           jsonb_build_object('state', p_job.state));
    end if;
    if p_job.max_tasks = 1 then
        return xce.refusal('not_resizable', 'a serial job has one task; submit it with max_tasks above 1',
                           jsonb_build_object('max_tasks', 1));
    end if;
    if p_job.state <> 'running' then
        return xce.refusal('job_not_running', 'the job has no allocation yet; wait until it runs',
                           jsonb_build_object('state', p_job.state));
    end if;
    return null;
end;
$$;

-- Purpose: PROTOCOL 14, acceptance: staying members + what open grows ask for + new <= max_tasks.
--   Leaving tasks do not count here; placement counts them. Locks: none.
create or replace function xce.refuse_grow(p_job xce.job, p_tasks integer)
returns jsonb
language plpgsql
stable
as $$
declare
    v_members integer := xce.staying_members(p_job.id);
    v_asked integer;
begin
    select coalesce(sum(r.tasks_max), 0) into v_asked
      from xce.resize_request r
     where r.job_id = p_job.id
       and r.kind = 'grow'
       and r.state in ('pending', 'placed');
    if v_members + v_asked + p_tasks <= p_job.max_tasks then
        return null;
    end if;
    return xce.refusal('above_max',
                       format('the job has %s tasks and %s asked for; with %s more it is above its maximum of %s',
                              v_members, v_asked, p_tasks, p_job.max_tasks),
                       jsonb_build_object('max_tasks', p_job.max_tasks, 'tasks', v_members,
                                          'tasks_asked', v_asked, 'grantable',
                                          greatest(0, p_job.max_tasks - v_members - v_asked)));
end;
$$;
