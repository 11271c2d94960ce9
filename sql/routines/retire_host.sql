-- Purpose: lost -> down: an operator vouches that the machine is off, which counts as an expired fence
--   (PROTOCOL 1, 27): its tasks end, holds there are given back, and what follows, follows at once. One
--   that is silent for long enough, but was not judged (PROTOCOL 32), is lost by that word.
--   A host that is down already stays so.
-- Locks: job, request, task, host, heartbeat, each ascending; idempotency key. Raises: RZ422; 40001
--   when another job came to the host meanwhile: the caller runs it again.
create or replace function xce.retire_host(p_call jsonb, p_now timestamptz default null)
returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_user bigint := (p_call ->> 'user_id')::bigint;
    v_host xce.host;
    v_jobs bigint[];
    v_now timestamptz;
    v_answer jsonb;
    v_rings text[];
    v_out xce.effects := row('{}', '{}', '{}')::xce.effects;
begin
    if not (p_call ->> 'is_operator')::boolean then
        return xce.refusal('not_allowed', 'only an operator may vouch that a host is off; ask one', '{}');
    end if;
    select h.* into v_host from xce.host h where h.name = p_call ->> 'name' and h.state <> 'removed';
    v_jobs := xce.jobs_on_host(v_host.id);
    perform xce.lock_silent(array[v_host.id], v_jobs);
    v_answer := xce.replay_key(p_call);
    if v_answer is not null then
        return v_answer;
    end if;
    if v_host.id is null then
        return xce.refusal('not_found', 'there is no such host; the list of hosts tells which there are', '{}');
    end if;
    select h.* into v_host from xce.host h where h.id = v_host.id;
    v_now := coalesce(p_now, clock_timestamp());
    v_answer := xce.refuse_retire(v_host, (p_call ->> 'confirm_dead')::boolean, v_now);
    if v_answer is not null then
        return v_answer;
    end if;
    if not xce.jobs_on_host(v_host.id) <@ v_jobs then
        raise exception 'a job came to host % meanwhile', v_host.name using errcode = '40001';
    end if;
    v_rings := array['xce_plan', 'xce_watch', 'xce_host_' || v_host.id];
    if exists (select from xce.silent_hosts(v_now) s where s.id = v_host.id) then
        v_out := xce.mark_lost(v_host.id, null, v_now);
        v_host.state := 'lost';
    end if;
    if v_host.state = 'lost' then
        v_rings := v_rings || xce.empty_lost_hosts(array[v_host.id], v_jobs, v_user, v_now, v_out);
        perform xce.advance_host(v_host.id, 'retire', 'operator', v_now, 'an operator vouches that it is off', null, v_user);
    end if;
    perform xce.keep_key(p_call, 202, 'host', v_host.id, v_now);
    return xce.acceptance(202, v_host.id, xce.distinct_rings(v_rings));
end;
$$;

-- Purpose: why a host is not retired, or null. Locks: none.
create or replace function xce.refuse_retire(p_host xce.host, p_is_confirmed boolean, p_now timestamptz)
returns jsonb
language plpgsql
stable
as $$
begin
    if p_host.state = 'removed' then
        return xce.refusal('not_found', 'there is no such host; the list of hosts tells which there are', '{}');
    end if;
    if p_host.state = 'down' then
        return null;
    end if;
    if p_host.state <> 'lost' and not exists (select from xce.silent_hosts(p_now) s where s.id = p_host.id) then
        return xce.refuse_unless_empty(p_host, format('host %s is %s; only a lost one can be vouched for: drain it',
                                                      p_host.name, p_host.state));
    end if;
    if not p_is_confirmed then
        return xce.refusal('invalid', format('host %s is lost and its tasks may still run: make sure that it is off, '
                                             'then send {"confirm_dead": true}', p_host.name),
                           jsonb_build_object('path', '$.confirm_dead', 'state', p_host.state));
    end if;
    return null;
end;
$$;

-- Purpose: jobs with open tasks or holds on a host, ascending. Locks: none.
create or replace function xce.jobs_on_host(p_host bigint)
returns bigint[]
language sql
stable
as $$
    select array(select t.job_id from xce.task t where t.host_id = p_host and t.is_open
                 union
                 select r.job_id
                   from xce.hold d
                   join xce.resize_request r on r.id = d.request_id
                  where d.host_id = p_host
                  order by 1)
$$;

-- Purpose: end what lost hosts have, as an operator vouched: their tasks are lost, and requests that hold
--   room there wait again. p_effects is what the caller did before. Answers the channels to ring.
-- Locks: none of its own; the caller holds the jobs', requests', tasks' and hosts'. Raises: RZ422.
create or replace function xce.empty_lost_hosts(
    p_hosts bigint[],
    p_jobs bigint[],
    p_user bigint,
    p_now timestamptz,
    p_effects xce.effects
)
returns text[]
language plpgsql
as $$
declare
    v_placed bigint[] := array(select distinct d.request_id from xce.hold d where d.host_id = any (p_hosts) order by 1);
    v_tasks bigint[] := array(select t.id from xce.task t where t.host_id = any (p_hosts) and t.is_open order by t.id);
    v_out xce.effects := xce.join_effects(p_effects, xce.lose_tasks(v_tasks, 'operator', p_now));
begin
    if cardinality(v_placed) > 0 then
        perform xce.advance_requests(v_placed, 'unplace', 'operator', p_now,
                                     array_fill('its host is off'::text, array[cardinality(v_placed)]),
                                     p_actor_id => p_user);
        v_out := xce.join_effects(v_out, row('{}'::bigint[], v_placed, array['xce_plan'])::xce.effects);
    end if;
    v_out := xce.join_effects(v_out, xce.settle_jobs(p_jobs, p_now));
    return xce.free_hosts(v_out, p_now);
end;
$$;
