-- Purpose: judge and accept resize requests, many calls in one transaction, one answer each. A known
--   key outranks every refusal; a refusal changes nothing.
-- Locks: job (ascending), request, task, host, idempotency key. Raises: RZ422.
create or replace function xce.ask_resizes(p_calls jsonb, p_now timestamptz default null)
returns table (ordinal integer, answer jsonb)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    v_call record;
    v_one record;
    v_ask jsonb;
    v_job xce.job;
    v_turn bigint := 1;
    v_grows jsonb[] := '{}';
    v_now timestamptz;
    v_out xce.effects := row('{}', '{}', '{}')::xce.effects;
begin
    perform from xce.job j
      where j.id in (select (c ->> 'job_id')::bigint from jsonb_array_elements(p_calls) as c)
      order by j.id
        for no key update;
    -- A size supersedes grows, and a shrink lowers those whose tasks it takes.
    perform from xce.resize_request r
      where r.job_id in (select (c ->> 'job_id')::bigint from jsonb_array_elements(p_calls) as c
                          where c ->> 'kind' <> 'grow')
        and r.is_open
      order by r.id
        for no key update;
    v_now := coalesce(p_now, clock_timestamp());
    -- In turns of at most one call for each job: the next is judged by what this one left. The grows of a
    -- turn are written together, because a statement for each costs more than all that it does.
    for v_call in select c.value, c.ordinality::integer - 1 as place,
                         row_number() over (partition by c.value -> 'job_id' order by c.ordinality) as turn
                    from jsonb_array_elements(p_calls) with ordinality as c
                   order by turn, place
    loop
        if v_call.turn > v_turn then
            return query select g.ordinal, g.answer from xce.accept_grows(v_grows, v_now) g;
            v_turn := v_call.turn;
            v_grows := '{}';
        end if;
        ordinal := v_call.place;
        answer := coalesce(xce.refuse_token(v_call.value), xce.replay_key(v_call.value));
        if answer is null then
            select j.* into v_job from xce.job j where j.id = (v_call.value ->> 'job_id')::bigint;
            answer := xce.refuse_resize(v_job, v_call.value);
        end if;
        if answer is null then
            select x.refusal, x.ask into answer, v_ask from xce.judge_resize(v_job, v_call.value) x;
        end if;
        if answer is null and v_call.value ->> 'kind' = 'grow' then
            v_grows := v_grows || (v_ask || jsonb_build_object('ordinal', ordinal));
        else
            if answer is null then
                select x.answer, x.effects into v_one from xce.accept_resize(v_job, v_ask, v_call.value, v_now) x;
                answer := v_one.answer;
                v_out := xce.join_effects(v_out, v_one.effects);
            end if;
            return next;
        end if;
    end loop;
    return query select g.ordinal, g.answer from xce.accept_grows(v_grows, v_now) g;
    if v_out.ended <> '{}' or v_out.unheld <> '{}' then
        perform xce.free_hosts(v_out, v_now);
    end if;
end;
$$;

-- Purpose: write grows that were judged, of as many jobs. Each is its call with its `ordinal`, which the
--   answer has too. Locks: request (new), idempotency key. Raises: unique_violation.
create or replace function xce.accept_grows(p_grows jsonb[], p_now timestamptz)
returns table (ordinal integer, answer jsonb)
language plpgsql
as $$
begin
    if p_grows = '{}' then
        return;
    end if;
    return query
    with asked as (
        select g.value, r.id
          from xce.ask_requests(
                   array(select (g ->> 'job_id')::bigint from unnest(p_grows) as g), p_grows,
                   array(select xce.caller_actor(g) from unnest(p_grows) as g),
                   array(select (g ->> 'user_id')::bigint from unnest(p_grows) as g), p_now) r
          join unnest(p_grows) as g (value) on (g.value ->> 'job_id')::bigint = r.job_id
    ),
    kept as (
        insert into xce.idempotency_key (user_id, method, path, key, body_sha256, status, resource, resource_id, created_at)
        select (a.value ->> 'user_id')::bigint, a.value ->> 'method', a.value ->> 'path', a.value ->> 'key',
               a.value ->> 'body_sha256', 202, 'resize', a.id, p_now
          from asked a
         where a.value ->> 'key' is not null
    )
    select (a.value ->> 'ordinal')::integer, xce.acceptance(202, a.id, array['xce_plan', 'xce_watch'])
      from asked a;
end;
$$;

-- Purpose: write a shrink or a size that was judged, p_ask being what p_call asks for. With `at_once` a
--   shrink that nothing stands against is stopped here too: giving room back needs no leader (R8), and a
--   turn of the wheel would only find the same again. Else it waits for one, pending.
-- Locks: request, task, idempotency key; the caller holds the job. Raises: RZ422, unique_violation.
create or replace function xce.accept_resize(p_job xce.job, p_ask jsonb, p_call jsonb, p_now timestamptz)
returns table (answer jsonb, effects xce.effects)
language plpgsql
as $$
declare
    v_id bigint := xce.ask_request(p_job.id, p_ask, xce.caller_actor(p_call), (p_call ->> 'user_id')::bigint, p_now);
    v_stop record;
    v_is_stopped boolean := false;
begin
    effects := row('{}', '{}', '{}')::xce.effects;
    if p_ask ->> 'kind' = 'shrink' then
        update xce.task t
           set shrink_id = v_id
         where t.job_id = p_job.id
           and t.attempt = p_job.attempt
           and t.index in (select x::integer from jsonb_array_elements_text(p_ask -> 'task_indices') as x);
    end if;
    if p_call ->> 'kind' = 'to' then
        effects := xce.supersede_grows(p_job.id, v_id, p_now);
    end if;
    if p_ask ->> 'kind' = 'shrink' and (p_call ->> 'at_once')::boolean then
        select x.is_stopped, x.effects into v_stop from xce.stop_at_once(v_id, p_now) x;
        v_is_stopped := v_stop.is_stopped;
        effects := xce.join_effects(effects, v_stop.effects);
    end if;
    perform xce.keep_key(p_call, 202, 'resize', v_id, p_now);
    -- What only leaves waits for its workers; the leader has nothing to do until they report.
    answer := xce.acceptance(202, v_id, xce.distinct_rings(
        effects.rings || array['xce_watch'] || case when v_is_stopped and effects.ended = '{}' then '{}' else array['xce_plan'] end));
    return next;
end;
$$;

-- Purpose: stop a shrink that was accepted just now, where the bounds hold on what runs (PROTOCOL 10).
--   Only tasks that had not come up can decide a grow or start by leaving, so only then it settles.
-- Locks: task; the caller holds the job and its requests. Raises: RZ422.
create or replace function xce.stop_at_once(p_id bigint, p_now timestamptz)
returns table (is_stopped boolean, effects xce.effects)
language plpgsql
as $$
declare
    v_job bigint;
    v_stop record;
begin
    -- Whether a task runs is fixed by the job's lock; a claim meanwhile only turns assigned into starting.
    select min(t.job_id) filter (where t.state <> 'running') into v_job from xce.task t where t.shrink_id = p_id;
    select x.code, x.effects into v_stop from xce.stop_shrink(p_id, p_now, null) x;
    is_stopped := v_stop.code is null;
    effects := v_stop.effects;
    if is_stopped and v_job is not null then
        effects := xce.join_effects(effects, xce.settle_jobs(array[v_job], p_now));
    end if;
    return next;
end;
$$;

-- Purpose: what a call asks for, as a grow or a shrink; or why it is refused. A size (`to`) becomes
--   the one or the other by the members that no open shrink names, and stays it (PROTOCOL 17); where
--   the job has that size already, a grow by nothing records that it was asked.
-- Locks: none; the caller holds the job's lock.
create or replace function xce.judge_resize(p_job xce.job, p_call jsonb)
returns table (refusal jsonb, ask jsonb)
language plpgsql
stable
as $$
declare
    v_delta integer;
begin
    ask := p_call;
    if p_call ->> 'kind' = 'to' then
        v_delta := (p_call ->> 'to')::integer - xce.staying_members(p_job.id);
        refusal := xce.refuse_size(p_job, (p_call ->> 'to')::integer);
        ask := (p_call - 'tasks' - 'count') || case when v_delta < 0 then jsonb_build_object('kind', 'shrink', 'count', -v_delta, 'hosts', null)
                              else jsonb_build_object('kind', 'grow', 'min', v_delta, 'max', v_delta) end;
    end if;
    if refusal is null and ask ->> 'kind' = 'shrink' then
        select s.refusal, s.ask into refusal, ask from xce.judge_shrink(p_job, ask) s;
    elsif refusal is null then
        if p_call ->> 'hosts' is not null or p_call ->> 'exclude_hosts' is not null then
            refusal := xce.refuse_unknown_hosts(p_call);
        end if;
        if refusal is null and p_call ->> 'kind' = 'grow' then
            refusal := xce.refuse_grow(p_job, (ask ->> 'max')::integer);
        end if;
        if refusal is null then
            refusal := xce.refuse_never(p_job.span, (ask ->> 'min')::bigint,
                                        xce.allowed_hosts(p_job.hosts, xce.names(p_call -> 'hosts')),
                                        p_job.exclude_hosts || xce.names(p_call -> 'exclude_hosts'));
        end if;
    end if;
    return next;
end;
$$;

-- Purpose: the hosts that job and request both name; null where neither names any. Locks: none.
create or replace function xce.allowed_hosts(p_job text[], p_request text[])
returns text[]
language sql
immutable
as $$
    select case when p_job is null then p_request
                when p_request is null then p_job
                else array(select unnest(p_job) intersect select unnest(p_request)) end
$$;

-- Purpose: a size outside the job's own bounds is refused; open grows do not matter, because the
--   size supersedes them. Locks: none.
create or replace function xce.refuse_size(p_job xce.job, p_size integer)
returns jsonb
language sql
immutable
as $$
    select case when p_size > (p_job).max_tasks
                then xce.refusal('above_max', format('the maximum of the job is %s', (p_job).max_tasks),
                                 jsonb_build_object('max_tasks', (p_job).max_tasks, 'asked', p_size))
                when p_size < (p_job).min_tasks
                then xce.refusal('below_min', format('the minimum of the job is %s', (p_job).min_tasks),
                                 jsonb_build_object('min_tasks', (p_job).min_tasks, 'asked', p_size)) end
$$;

-- Purpose: end the pending and placed grows that a request for a size replaces; one that asks for the
--   size the job has ends as well.
-- Locks: request; the caller holds the job's lock. Raises: RZ422.
create or replace function xce.supersede_grows(p_job bigint, p_by bigint, p_now timestamptz)
returns xce.effects
language plpgsql
as $$
declare
    v_old bigint[];
    v_out xce.effects;
begin
    v_old := array(select r.id from xce.resize_request r
                    where r.job_id = p_job and r.kind = 'grow' and r.state in ('pending', 'placed') and r.id <> p_by
                    order by r.id for no key update);
    update xce.resize_request r set superseded_by = p_by where r.id = any (v_old);
    v_out := xce.drop_requests(v_old, format('superseded by #%s', p_by), 'controller', p_now);
    return xce.join_effects(v_out, xce.drop_requests(
        array(select r.id from xce.resize_request r where r.id = p_by and r.kind = 'grow' and r.tasks_max = 0),
        'already_there', 'controller', p_now));
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
