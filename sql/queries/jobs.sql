-- Jobs with their allocation as it is; follows a CTE `wanted (id)`.
select j.id,
       j.name,
       j.state,
       nullif(concat_ws('; ', j.reason, xce.waits_for_host(a.lost_hosts, j.fence)), '') as reason,
       u.name as owner,
       p.name as project,
       q.name as queue,
       a.tasks,
       a.running_tasks,
       j.submitted_tasks,
       j.min_tasks,
       j.max_tasks,
       j.generation,
       j.attempt,
       a.hosts,
       j.exit_code,
       j.submitted_at,
       j.started_at,
       j.ended_at,
       j.cpus,
       j.mem_mib,
       j.gpus,
       j.span,
       j.existing_hosts,
       j.constraints,
       j.exclude_hosts,
       j.priority,
       j.held,
       j.begin_at,
       j.run_limit_s,
       j.ends_when,
       j.on_task_failure,
       j.on_host_loss,
       j.fence,
       j.grace_s,
       j.start_s,
       j.loss_grace_s
  from wanted w
  join xce.job j on j.id = w.id
  join xce.user_account u on u.id = j.owner_id
  join xce.project p on p.id = j.project_id
  join xce.queue q on q.id = j.queue_id
 cross join lateral (
       select count(*) filter (where t.is_member)::integer as tasks,
              count(*) filter (where t.state = 'running')::integer as running_tasks,
              coalesce(array_agg(distinct h.name order by h.name) filter (where t.is_member), '{}') as hosts,
              string_agg(distinct h.name, ', ' order by h.name) filter (where h.state = 'lost') as lost_hosts
         from xce.task t
         join xce.host h on h.id = t.host_id
        where t.job_id = j.id
          and t.is_open
       ) a
 where %(user_id)s::bigint is null
    or j.owner_id = %(user_id)s::bigint
 order by j.id
