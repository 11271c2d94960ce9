-- Purpose: insert an accepted request as `pending` and its history. p_ask carries kind, tasks_asked,
--   tasks_min and whatever else the kind has; the caller has judged.
-- Locks: request (new). Raises: RZ422.
create or replace function xce.ask_request(
    p_job xce.job,
    p_ask jsonb,
    p_actor text,
    p_actor_id bigint,
    p_now timestamptz
)
returns bigint
language plpgsql
as $$
declare
    v_id bigint;
begin
    insert into xce.resize_request (job_id, attempt, kind, state, tasks_asked, tasks_min, tasks_max, task_indices,
                                    hosts, exclude_hosts, existing_hosts, grace_s, deadline_at,
                                    origin, requested_by, created_at)
    values (p_job.id, p_job.attempt, p_ask ->> 'kind', 'pending',
            (p_ask ->> 'max')::integer, (p_ask ->> 'min')::integer, (p_ask ->> 'max')::integer,
            coalesce(array(select x::integer from jsonb_array_elements_text(p_ask -> 'task_indices') as x), '{}'),
            case when jsonb_typeof(p_ask -> 'hosts') = 'array'
                 then array(select jsonb_array_elements_text(p_ask -> 'hosts')) end,
            case when jsonb_typeof(p_ask -> 'exclude_hosts') = 'array'
                 then array(select jsonb_array_elements_text(p_ask -> 'exclude_hosts')) else '{}' end,
            p_ask ->> 'existing_hosts', (p_ask ->> 'grace_s')::numeric,
            p_now + xce.seconds((p_ask ->> 'deadline_s')::numeric),
            p_actor, p_actor_id, p_now)
    returning id into v_id;
    insert into xce.history (lifecycle, row_id, version, at, job_id, attempt, source, event, target,
                             actor, actor_id, detail, generation, era)
    values (p_ask ->> 'kind', v_id, 1, p_now, p_job.id, p_job.attempt, 'none', 'ask', 'pending',
            p_actor, p_actor_id,
            jsonb_build_object('tasks_asked', p_ask -> 'max', 'tasks_min', p_ask -> 'min',
                               'task_indices', p_ask -> 'task_indices', 'hosts', p_ask -> 'hosts'),
            p_job.generation, xce.era());
    return v_id;
end;
$$;

-- Purpose: ask for the first allocation of an attempt: the submitted tasks, or from the least of a
--   moldable job up.
-- Locks: request (new). Raises: RZ422.
create or replace function xce.ask_start(p_job bigint, p_actor text, p_actor_id bigint, p_now timestamptz)
returns bigint
language plpgsql
as $$
declare
    v_job xce.job;
begin
    select j.* into v_job from xce.job j where j.id = p_job;
    return xce.ask_request(v_job, jsonb_build_object(
        'kind', 'start', 'max', v_job.submitted_tasks, 'min', v_job.submitted_tasks_min,
        'task_indices', '[]'::jsonb, 'hosts', to_jsonb(v_job.hosts), 'exclude_hosts', to_jsonb(v_job.exclude_hosts)
    ), p_actor, p_actor_id, p_now);
end;
$$;
