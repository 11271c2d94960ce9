-- R2: tasks that may have a process, and holds, do not exceed the maximum; no shrink has stopped a
-- running job's tasks below its minimum (size at each shrink's `stop`, from history).
select 'R2' as rule,
       format('job %s', j.id) as row,
       format('%s tasks may have a process or are held, the maximum is %s', xce.claimed_tasks(j.id), j.max_tasks) as what
  from xce.job j
 where j.is_open
   and xce.claimed_tasks(j.id) > j.max_tasks
union all
select 'R2', format('request %s', r.id),
       format('its stop left job %s with %s tasks, the minimum is %s', r.job_id, left_over.tasks, j.min_tasks)
  from xce.resize_request r
  join xce.job j on j.id = r.job_id
  join xce.history h on h.lifecycle = 'shrink' and h.row_id = r.id and h.event = 'stop'
 cross join lateral (
       select count(*) as tasks
         from xce.task t
        where t.job_id = r.job_id
          and t.attempt = r.attempt
          and t.assigned_at <= h.at
          and t.shrink_id is distinct from r.id
          and not exists (select from xce.history x
                           where x.lifecycle = 'task' and x.row_id = t.id and x.at <= h.at
                             and x.target in ('stopping', 'ended'))
       ) left_over
 where r.kind = 'shrink'
   and left_over.tasks < j.min_tasks
   and exists (select from xce.history x
                where x.lifecycle = 'task' and x.event = 'stop' and x.at = h.at and x.job_id = r.job_id
                  and x.source = 'running')
 order by 2
