-- R12: no open grow asks for more than the job's own maximum leaves.
select 'R12' as rule,
       format('job %s', j.id) as row,
       format('%s tasks and %s asked for, the maximum is %s', xce.staying_members(j.id), g.asked, j.max_tasks) as what
  from xce.job j
  join (select r.job_id, sum(r.tasks_max) as asked
          from xce.resize_request r
         where r.kind = 'grow'
           and r.state in ('pending', 'placed')
         group by r.job_id) g on g.job_id = j.id
 where xce.staying_members(j.id) + g.asked > j.max_tasks
 order by j.id
