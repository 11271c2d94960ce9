-- Purpose: cancel requests, whole or in part (PROTOCOL 16, 18), many calls in one transaction.
-- Locks: job (ascending), request, task, host. Raises: RZ422.
create or replace function xce.cancel_requests(p_calls jsonb, p_now timestamptz default null)
returns table (ordinal integer, answer jsonb)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_call record;
    v_now timestamptz;
    v_jobs bigint[];
    v_out xce.effects := row('{}', '{}', '{}')::xce.effects;
    v_one record;
begin
    select array_agg(distinct r.job_id) into v_jobs
      from xce.resize_request r
     where r.id in (select (c ->> 'request_id')::bigint from jsonb_array_elements(p_calls) as c);
    perform from xce.job j where j.id = any (v_jobs) order by j.id for no key update;
    perform from xce.resize_request r where r.job_id = any (v_jobs) and r.is_open order by r.id for no key update;
    v_now := coalesce(p_now, clock_timestamp());
    for v_call in select c.value, c.ordinality::integer - 1 as place
                    from jsonb_array_elements(p_calls) with ordinality as c
    loop
        ordinal := v_call.place;
        answer := coalesce(xce.refuse_token(v_call.value), xce.replay_key(v_call.value));
        if answer is null then
            select x.answer, x.effects into v_one from xce.cancel_one(v_call.value, v_now) x;
            answer := v_one.answer;
            v_out := xce.join_effects(v_out, v_one.effects);
        end if;
        return next;
    end loop;
    v_out := xce.join_effects(v_out, xce.settle_jobs(v_jobs, v_now));
    perform xce.free_hosts(v_out, v_now);
end;
$$;

-- Purpose: cancel one request of a job whose lock the caller holds.
-- Locks: request, task. Raises: RZ422.
create or replace function xce.cancel_one(p_call jsonb, p_now timestamptz)
returns table (answer jsonb, effects xce.effects)
language plpgsql
as $$
declare
    v_request xce.resize_request;
    v_count integer := (p_call ->> 'count')::integer;
    v_actor text := xce.caller_actor(p_call);
    v_user bigint := (p_call ->> 'user_id')::bigint;
begin
    effects := row('{}', '{}', '{}')::xce.effects;
    select r.* into v_request
      from xce.resize_request r
     where r.id = (p_call ->> 'request_id')::bigint
       for no key update;
    answer := xce.refuse_cancel(v_request, p_call);
    if answer is not null then
        return next;
        return;
    end if;
    if v_count is null or v_count >= v_request.tasks_max then
        effects := xce.drop_requests(array[v_request.id], 'cancelled by ' || v_actor, v_actor, p_now, p_actor_id => v_user);
    else
        effects := xce.cancel_part(v_request, v_count, v_actor, v_user, p_now);
    end if;
    perform xce.keep_key(p_call, 200, 'resize', v_request.id, p_now);
    answer := xce.acceptance(200, v_request.id, array['xce_plan', 'xce_watch']);
    return next;
end;
$$;

-- Purpose: why a cancel is refused, or null. Locks: none.
create or replace function xce.refuse_cancel(p_request xce.resize_request, p_call jsonb)
returns jsonb
language plpgsql
stable
as $$
begin
    if p_request.id is null or not exists (
        select from xce.job j
         where j.id = p_request.job_id
           and (j.owner_id = (p_call ->> 'user_id')::bigint or (p_call ->> 'is_operator')::boolean)
    ) then
        return xce.refusal('not_found', 'there is no such request of yours', '{}');
    end if;
    if p_request.state not in ('pending', 'placed') then
        return xce.refusal('too_late', format('request %s is %s already', p_request.id, p_request.state),
                           jsonb_build_object('state', p_request.state, 'reason', p_request.reason,
                                              'tasks_granted', p_request.tasks_granted));
    end if;
    if p_request.kind = 'start' then
        return xce.refusal('not_allowed', 'the start of a job is ended by killing the job', '{}');
    end if;
    return null;
end;
$$;

-- Purpose: lower a request by p_count tasks; a placed grow gives its hold back first, a shrink frees
--   the last of the tasks it named.
-- Locks: request, task. Raises: RZ422.
create or replace function xce.cancel_part(
    p_request xce.resize_request,
    p_count integer,
    p_actor text,
    p_actor_id bigint,
    p_now timestamptz
)
returns xce.effects
language plpgsql
as $$
declare
    v_out xce.effects := row('{}', '{}', array['xce_plan', 'xce_watch'])::xce.effects;
    v_left integer := p_request.tasks_max - p_count;
begin
    if p_request.state = 'placed' then
        perform xce.advance_requests(array[p_request.id], 'unplace', p_actor, p_now, array['amended'],
                                     p_actor_id => p_actor_id);
        v_out.unheld := array[p_request.id];
    end if;
    if p_request.kind = 'shrink' then
        update xce.task t
           set shrink_id = null
         where t.shrink_id = p_request.id
           and t.index = any (p_request.task_indices[v_left + 1:]);
    end if;
    update xce.resize_request r
       set tasks_max = v_left,
           tasks_min = least(r.tasks_min, v_left),
           task_indices = r.task_indices[:v_left]
     where r.id = p_request.id;
    perform xce.amend_requests(array[p_request.id], format('%s cancelled by %s', p_count, p_actor), p_actor, p_now, p_actor_id);
    return v_out;
end;
$$;
