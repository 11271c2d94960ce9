-- Purpose: insert accepted requests as `pending`, with their history, at most one for each job. p_asks,
--   parallel to p_jobs, carry kind, max, min and whatever else the kind has; the caller has judged.
-- Locks: request (new); the caller holds the jobs. Raises: RZ422.
create or replace function xce.ask_requests(
    p_jobs bigint[],
    p_asks jsonb[],
    p_actors text[],
    p_actor_ids bigint[],
    p_now timestamptz
)
returns table (job_id bigint, id bigint)
language plpgsql
as $$
begin
    return query
    with made as (
        insert into xce.resize_request as r (
                    job_id, attempt, kind, state, tasks_asked, tasks_min, tasks_max, task_indices,
                    hosts, exclude_hosts, existing_hosts, grace_s, deadline_at,
                    origin, requested_by, created_at)
        select j.id, j.attempt, i.ask ->> 'kind', 'pending',
               (i.ask ->> 'max')::integer, (i.ask ->> 'min')::integer, (i.ask ->> 'max')::integer,
               coalesce(array(select x::integer from jsonb_array_elements_text(i.ask -> 'task_indices') as x), '{}'),
               case when jsonb_typeof(i.ask -> 'hosts') = 'array'
                    then array(select jsonb_array_elements_text(i.ask -> 'hosts')) end,
               case when jsonb_typeof(i.ask -> 'exclude_hosts') = 'array'
                    then array(select jsonb_array_elements_text(i.ask -> 'exclude_hosts')) else '{}' end,
               i.ask ->> 'existing_hosts', (i.ask ->> 'grace_s')::numeric,
               p_now + xce.seconds((i.ask ->> 'deadline_s')::numeric),
               i.actor, i.actor_id, p_now
          from unnest(p_jobs, p_asks, p_actors, p_actor_ids) with ordinality as i (job_id, ask, actor, actor_id, place)
          join xce.job j on j.id = i.job_id
         order by i.place
        returning r.job_id, r.id, r.attempt
    ),
    written as (
        insert into xce.history (lifecycle, row_id, version, at, job_id, attempt, source, event, target,
                                 actor, actor_id, detail, generation, era)
        select i.ask ->> 'kind', m.id, 1, p_now, m.job_id, m.attempt, 'none', 'ask', 'pending',
               i.actor, i.actor_id,
               jsonb_build_object('tasks_asked', i.ask -> 'max', 'tasks_min', i.ask -> 'min',
                                  'task_indices', i.ask -> 'task_indices', 'hosts', i.ask -> 'hosts'),
               j.generation, (select f.era from xce.fence f)
          from made m
          join unnest(p_jobs, p_asks, p_actors, p_actor_ids) as i (job_id, ask, actor, actor_id) on i.job_id = m.job_id
          join xce.job j on j.id = m.job_id
         order by m.id
    )
    select m.job_id, m.id from made m;
end;
$$;

-- Purpose: the same for one. Locks: request (new); the caller holds the job. Raises: RZ422.
create or replace function xce.ask_request(
    p_job bigint,
    p_ask jsonb,
    p_actor text,
    p_actor_id bigint,
    p_now timestamptz
)
returns bigint
language sql
as $$
    select r.id from xce.ask_requests(array[p_job], array[p_ask], array[p_actor], array[p_actor_id], p_now) r
$$;

-- Purpose: ask for the first allocation of an attempt: the submitted tasks, or from the least of a
--   moldable job up.
-- Locks: request (new). Raises: RZ422.
create or replace function xce.ask_start(p_job bigint, p_actor text, p_actor_id bigint, p_now timestamptz)
returns bigint
language sql
as $$
    select xce.ask_request(j.id, jsonb_build_object(
               'kind', 'start', 'max', j.submitted_tasks, 'min', j.submitted_tasks_min,
               'task_indices', '[]'::jsonb, 'hosts', to_jsonb(j.hosts), 'exclude_hosts', to_jsonb(j.exclude_hosts)
           ), p_actor, p_actor_id, p_now)
      from xce.job j
     where j.id = p_job
$$;
