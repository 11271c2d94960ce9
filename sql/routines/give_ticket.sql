-- Purpose: let the API speak once with the worker that has a task: a ticket for the port of the host of
--   the task's newest attempt, or of the one named, also after its end. The answer has the address and the
--   fingerprint to pin; no address where the task has no process yet, and then no ticket was made.
--   `sees_only` is the user whose jobs the caller sees, null for an operator. The API made the secret and
--   gives its hash only. Given under the job's lock, so that no ticket outlives what it was judged by.
-- Locks: job (share); then the rows that the ticket refers to (key share). Raises: nothing.
create or replace function xce.give_ticket(p_call jsonb, p_now timestamptz default null)
returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_job xce.job;
    v_task xce.task;
    v_host xce.host;
    v_door xce.incarnation;
    v_index integer := (p_call ->> 'index')::integer;
    v_answer jsonb := xce.refuse_token(p_call);
begin
    if v_answer is not null then
        return v_answer;
    end if;
    select j.* into v_job
      from xce.job j
     where j.id = (p_call ->> 'job_id')::bigint
       and (p_call ->> 'sees_only' is null or j.owner_id = (p_call ->> 'sees_only')::bigint)
       for share;
    select t.* into v_task
      from xce.task t
     where t.job_id = v_job.id
       and t.index = v_index
       and (p_call ->> 'attempt' is null or t.attempt = (p_call ->> 'attempt')::integer)
     order by t.attempt desc
     limit 1;
    if v_task.id is null and v_job.is_open and v_job.next_index <= v_index and v_index < v_job.submitted_tasks
       and coalesce((p_call ->> 'attempt')::integer, v_job.attempt) = v_job.attempt
       or v_task.state = 'assigned'
    then
        return jsonb_build_object('ok', true, 'attempt', coalesce(v_task.attempt, v_job.attempt));
    end if;
    if v_task.id is null then
        return xce.refusal('not_found', 'there is no such task', '{}');
    end if;
    select h.* into v_host from xce.host h where h.id = v_task.host_id;
    select i.* into v_door from xce.incarnation i where i.host_id = v_host.id and i.incarnation = v_host.incarnation;
    v_answer := xce.refuse_visit(v_task, v_host, v_door);
    if v_answer is not null then
        return v_answer;
    end if;
    insert into xce.ticket (sha256, purpose, job_id, attempt, task_index, host_id, expires_at)
    values (decode(p_call ->> 'sha256', 'hex'), p_call ->> 'purpose', v_task.job_id, v_task.attempt, v_task.index,
            v_host.id, coalesce(p_now, clock_timestamp()) + interval '30 seconds');
    return jsonb_build_object('ok', true, 'attempt', v_task.attempt, 'is_ended', v_task.state = 'ended',
                              'address', v_door.address, 'fingerprint', v_door.fingerprint);
end;
$$;

-- Purpose: why the worker of a task's host cannot be visited for it; null where it can be tried. A host
--   that is `down` may have a living worker: it only takes nothing new.
-- Locks: none.
create or replace function xce.refuse_visit(p_task xce.task, p_host xce.host, p_door xce.incarnation)
returns jsonb
language plpgsql
immutable
as $$
begin
    if p_task.how = 'withdrawn' then
        return xce.refusal('output_gone', 'the task never ran, so that it wrote nothing', '{}');
    end if;
    if p_host.state = 'removed' then
        return xce.refusal('output_gone', format('its host %s was removed', p_host.name), '{}');
    end if;
    if p_host.state = 'lost' or p_door.address is null or p_door.fingerprint is null then
        return xce.refusal('unavailable', format('host %s cannot be reached; try again when it is back', p_host.name),
                           jsonb_build_object('host', p_host.name));
    end if;
    return null;
end;
$$;
