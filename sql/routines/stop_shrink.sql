-- Purpose: the `stop` of a pending shrink: bounds judged again on what runs now (PROTOCOL 10), then
--   its tasks leave the allocation; those not decided yet lower the grow that brought them.
-- Locks: task (ascending); the caller holds the job and its requests. Raises: RZ422.
create or replace function xce.stop_shrink(p_id bigint, p_now timestamptz, p_epoch bigint)
returns table (code text, effects xce.effects)
language plpgsql
as $$
declare
    v_request xce.resize_request;
    v_named bigint[];
    v_grows bigint[];
begin
    effects := row('{}', '{}', '{}')::xce.effects;
    select r.* into v_request from xce.resize_request r where r.id = p_id;
    code := case when v_request.kind <> 'shrink' or v_request.state <> 'pending' then 'state'
                 when not xce.may_stop(v_request) then 'below_min' end;
    if code is not null then
        return next;
        return;
    end if;
    select array_agg(t.id order by t.id) into v_named
      from xce.task t
     where t.shrink_id = p_id
       and t.is_member;
    if v_named is null then
        effects := xce.drop_requests(array[p_id], 'nothing_to_release', 'controller', p_now, p_epoch);
        return next;
        return;
    end if;
    v_grows := array(select distinct t.request_id
                       from xce.task t
                       join xce.resize_request r on r.id = t.request_id and r.state = 'committed'
                      where t.id = any (v_named) and t.outcome is null
                      order by 1);
    perform xce.raise_generation(array[v_request.job_id], true);
    perform xce.advance_requests(array[p_id], 'stop', 'controller', p_now, null, p_epoch);
    effects := xce.take_back_tasks(v_named, 'controller', 'shrink', p_now, v_request.grace_s, 'withdrawn',
                                   format('shrink #%s', p_id), p_epoch);
    perform xce.lower_withdrawn(v_grows, p_id, p_now);
    return next;
end;
$$;

-- Purpose: PROTOCOL 10: taking only tasks that do not run yet is always allowed; else the running
--   survivors must reach the minimum, not counting starting ones, those of a committed grow (it may
--   be rolled back) and those on lost or joining hosts.
-- Locks: none.
create or replace function xce.may_stop(p_request xce.resize_request)
returns boolean
language sql
stable
as $$
    select coalesce(bool_and(t.state <> 'running') filter (where t.shrink_id = p_request.id), true)
        or count(*) filter (where t.state = 'running' and t.shrink_id is distinct from p_request.id
                              and h.state not in ('lost', 'joining')
                              and not (r.kind = 'grow' and r.state = 'committed'))
           >= (select j.min_tasks from xce.job j where j.id = p_request.job_id)
      from xce.task t
      join xce.host h on h.id = t.host_id
      join xce.resize_request r on r.id = t.request_id
     where t.job_id = p_request.job_id
       and t.is_open
       and t.is_member
$$;

-- Purpose: committed grows whose undecided tasks a shrink took are lowered by them: their maximum,
--   and their minimum to at most that (PROTOCOL 2).
-- Locks: request (held). Raises: RZ422.
create or replace function xce.lower_withdrawn(p_grows bigint[], p_shrink bigint, p_now timestamptz)
returns void
language plpgsql
as $$
begin
    if cardinality(p_grows) = 0 then
        return;
    end if;
    update xce.resize_request r
       set tasks_max = x.staying,
           tasks_min = least(r.tasks_min, x.staying)
      from (select t.request_id, count(*) filter (where t.outcome is distinct from 'withdrawn')::integer as staying
              from xce.task t
             where t.request_id = any (p_grows)
             group by t.request_id) x
     where r.id = x.request_id;
    perform xce.advance_requests(p_grows, 'amend', 'controller', p_now,
                                 array_fill(format('withdrawn by #%s', p_shrink), array[cardinality(p_grows)]));
end;
$$;
