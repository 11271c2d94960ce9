-- Purpose: accept a job: its row, how to launch it, its history, and the request for its start.
--   Answers a refusal where the project, queue or a named host is not to be had.
-- Locks: job (new), request (new), idempotency key. Raises: unique_violation when two first calls
--   with one key raced; the caller rolls back and calls again.
create or replace function xce.submit_job(p_call jsonb, p_now timestamptz default null)
returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_body jsonb := p_call -> 'body';
    v_answer jsonb := xce.replay_key(p_call);
    v_actor text := xce.caller_actor(p_call);
    v_user bigint := (p_call ->> 'user_id')::bigint;
    v_job xce.job;
begin
    if v_answer is not null then
        return v_answer;
    end if;
    v_answer := xce.refuse_submit(v_body, v_user, (p_call ->> 'is_operator')::boolean);
    if v_answer is not null then
        return v_answer;
    end if;
    insert into xce.job (owner_id, project_id, queue_id, name, state, submitted_tasks, submitted_tasks_min,
                         min_tasks, max_tasks, cpus, mem_mib, gpus, span, existing_hosts, constraints, hosts,
                         exclude_hosts, priority, ends_when, on_task_failure, on_host_loss, fence, grace_s,
                         start_s, loss_grace_s, begin_at, run_limit_s, submitted_at)
    select v_user, p.id, q.id, v_body ->> 'name', 'pending',
           (v_body ->> 'tasks')::integer, (v_body ->> 'tasks_min')::integer,
           (v_body ->> 'min_tasks')::integer, (v_body ->> 'max_tasks')::integer,
           (v_body ->> 'cpus')::integer, (v_body ->> 'mem_mib')::bigint, (v_body ->> 'gpus')::integer,
           v_body -> 'span', coalesce(v_body ->> 'existing_hosts', q.existing_hosts, 'any'),
           v_body -> 'constraints',
           case when jsonb_typeof(v_body -> 'hosts') = 'array'
                then array(select jsonb_array_elements_text(v_body -> 'hosts')) end,
           array(select jsonb_array_elements_text(v_body -> 'exclude_hosts')),
           (v_body ->> 'priority')::integer, v_body ->> 'ends_when', v_body ->> 'on_task_failure',
           v_body ->> 'on_host_loss', coalesce(v_body ->> 'fence', q.fence, 'stop'),
           (v_body ->> 'grace_s')::numeric, (v_body ->> 'start_s')::numeric,
           coalesce((v_body ->> 'loss_grace_s')::numeric, xce.setting_value('fence_s')),
           (v_body ->> 'begin_at')::timestamptz, (v_body ->> 'run_limit_s')::numeric, v_now
      from xce.project p, xce.queue q
     where p.name = v_body ->> 'project'
       and q.name = v_body ->> 'queue'
    returning * into v_job;
    insert into xce.job_launch (job_id, command, head_command, env, cwd, stdout, stderr)
    values (v_job.id, array(select jsonb_array_elements_text(v_body -> 'command')),
            case when jsonb_typeof(v_body -> 'head_command') = 'array'
                 then array(select jsonb_array_elements_text(v_body -> 'head_command')) end,
            v_body -> 'env', v_body ->> 'cwd', v_body ->> 'stdout', v_body ->> 'stderr');
    insert into xce.history (lifecycle, row_id, version, at, job_id, attempt, source, event, target,
                             actor, actor_id, generation, era)
    values ('job', v_job.id, 1, v_now, v_job.id, 1, 'none', 'submit', 'pending', v_actor, v_user, 0, xce.era());
    perform xce.ask_start(v_job.id, v_actor, v_user, v_now);
    perform xce.keep_key(p_call, 201, 'job', v_job.id, v_now);
    return xce.acceptance(201, v_job.id, array['xce_plan', 'xce_watch']);
end;
$$;

-- Purpose: why a submit is refused, or null. Locks: none.
create or replace function xce.refuse_submit(p_body jsonb, p_user bigint, p_is_operator boolean)
returns jsonb
language plpgsql
stable
as $$
declare
    v_project xce.project;
begin
    select p.* into v_project from xce.project p where p.name = p_body ->> 'project';
    if v_project.id is null or not (v_project.is_open or p_is_operator or exists (
        select from xce.project_member m where m.project_id = v_project.id and m.user_id = p_user
    )) then
        return xce.refusal('project_not_allowed',
                           format('you are not a member of a project %s; name one of yours', p_body ->> 'project'),
                           jsonb_build_object('project', p_body ->> 'project'));
    end if;
    if not exists (select from xce.queue q where q.name = p_body ->> 'queue') then
        return xce.refusal('invalid', format('there is no queue %s', p_body ->> 'queue'),
                           jsonb_build_object('member', 'queue'));
    end if;
    return coalesce(xce.refuse_unknown_hosts(p_body),
                    xce.refuse_never(p_body -> 'span', (p_body ->> 'tasks_min')::bigint, xce.names(p_body -> 'hosts'),
                                     xce.names(p_body -> 'exclude_hosts')));
end;
$$;

-- Purpose: refuse what no set of hosts could ever take by its own terms: no host left of those named, or
--   more tasks than the span allows on them (R12). Null p_hosts are all hosts there may ever be.
-- Locks: none.
create or replace function xce.refuse_never(p_span jsonb, p_tasks bigint, p_hosts text[], p_exclude text[])
returns jsonb
language plpgsql
stable
as $$
declare
    v_hosts bigint;
    v_room bigint;
begin
    if p_hosts is null then
        return null;
    end if;
    select count(distinct n) into v_hosts from unnest(p_hosts) as n where n <> all (coalesce(p_exclude, '{}'));
    v_room := case when v_hosts = 0 then 0 else v_hosts * (p_span ->> 'per_host')::bigint end;
    if v_room >= p_tasks or v_room is null then
        return null;
    end if;
    return xce.refusal('never_fits',
                       format('%s tasks can never be placed on %s hosts with this span; name more hosts or ask for fewer tasks',
                              p_tasks, v_hosts),
                       jsonb_build_object('tasks', p_tasks, 'hosts', v_hosts, 'fits', v_room));
end;
$$;

-- Purpose: a JSON array of names as an array; null where it is none. Locks: none.
create or replace function xce.names(p_names jsonb)
returns text[]
language sql
immutable
as $$
    select case when jsonb_typeof(p_names) = 'array' then array(select jsonb_array_elements_text(p_names)) end
$$;

-- Purpose: refuse host names that no host bears: a typing error would wait for ever. Locks: none.
create or replace function xce.refuse_unknown_hosts(p_body jsonb)
returns jsonb
language sql
stable
as $$
    select xce.refusal('invalid', format('there is no host %s', string_agg(n.name, ', ' order by n.name)),
                       jsonb_build_object('member', 'hosts', 'unknown_hosts', jsonb_agg(n.name order by n.name)))
      from (select jsonb_array_elements_text(case when jsonb_typeof(p_body -> 'hosts') = 'array'
                                                  then p_body -> 'hosts' else '[]' end) as name
            union
            select jsonb_array_elements_text(case when jsonb_typeof(p_body -> 'exclude_hosts') = 'array'
                                                  then p_body -> 'exclude_hosts' else '[]' end)) n
     where not exists (select from xce.host h where h.name = n.name and h.state <> 'removed')
    having count(*) > 0
$$;
