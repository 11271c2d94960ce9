-- Purpose: the decisions of a plan that give room back or only say why: cancel, unplace, stop,
--   explain. Answers the refused ones as {ordinal: code}.
-- Locks: request (held), task. Raises: RZ422.
create or replace function xce.apply_giving_back(p_decisions jsonb, p_epoch bigint, p_now timestamptz)
returns table (refused jsonb, effects xce.effects)
language plpgsql
as $$
declare
    v_decision record;
    v_code text;
    v_one xce.effects;
    v_stopped record;
begin
    refused := '{}';
    effects := row('{}', '{}', '{}')::xce.effects;
    update xce.resize_request r
       set reason = d.reason
      from jsonb_to_recordset(p_decisions) as d ("do" text, request_id bigint, reason text)
     where d."do" = 'explain'
       and r.id = d.request_id
       and r.state in ('pending', 'placed')
       and r.reason is distinct from d.reason;
    update xce.job j
       set reason = d.reason
      from jsonb_to_recordset(p_decisions) as d ("do" text, request_id bigint, reason text)
      join xce.resize_request r on r.id = d.request_id and r.kind = 'start' and r.state = 'pending'
     where d."do" = 'explain'
       and j.id = r.job_id
       and j.state = 'pending';
    for v_decision in
        select (d.ordinality - 1)::text as place, d.value ->> 'do' as "do", d.value ->> 'reason' as reason, r.id, r.kind, r.state,
               r.version = (d.value ->> 'request_version')::bigint as is_current
          from jsonb_array_elements(p_decisions) with ordinality as d
          join xce.resize_request r on r.id = (d.value ->> 'request_id')::bigint
         where d.value ->> 'do' in ('cancel', 'unplace', 'stop')
         order by d.ordinality
    loop
        v_code := case when not v_decision.is_current then 'version'
                       when v_decision."do" = 'unplace' and v_decision.state <> 'placed' then 'state'
                       when v_decision."do" = 'cancel' and v_decision.state not in ('pending', 'placed') then 'state'
                       when v_decision."do" = 'cancel' and not xce.still_holds(v_decision.id, v_decision.reason, p_now)
                       then 'version' end;
        if v_code is null then
            case v_decision."do"
                when 'cancel' then
                    v_one := xce.drop_requests(array[v_decision.id], v_decision.reason, 'controller', p_now, p_epoch);
                when 'unplace' then
                    perform xce.advance_requests(array[v_decision.id], 'unplace', 'controller', p_now,
                                                 array[v_decision.reason], p_epoch);
                    v_one := row('{}', array[v_decision.id], '{}')::xce.effects;
                when 'stop' then
                    select x.code, x.effects into v_stopped from xce.stop_shrink(v_decision.id, p_now, p_epoch) x;
                    v_code := v_stopped.code;
                    v_one := v_stopped.effects;
            end case;
            effects := xce.join_effects(effects, v_one);
        end if;
        if v_code is not null then
            refused := refused || jsonb_build_object(v_decision.place, v_code);
        end if;
    end loop;
    return next;
end;
$$;

-- Purpose: whether the reason of a planned cancel still holds: the request's version does not move with
--   its job, of which a task may have come up or another shrink been cancelled since (PROTOCOL 31).
-- Locks: none; the caller holds the job and its requests.
create or replace function xce.still_holds(p_id bigint, p_reason text, p_now timestamptz)
returns boolean
language sql
stable
as $$
    select case p_reason
           when 'below_min' then not xce.may_stop(r)
           when 'above_max' then xce.staying_members(r.job_id) + greatest(1, r.tasks_min) > j.max_tasks
           when 'nothing_to_release' then not exists (select from xce.task t where t.shrink_id = r.id and t.is_member)
           when 'deadline' then r.deadline_at <= p_now
           when 'job_ended' then not j.is_open or j.state = 'stopping'
           else true end
      from xce.resize_request r
      join xce.job j on j.id = r.job_id
     where r.id = p_id
$$;
