-- R3: at most one task that may have a process for each (job, index), and only of the current attempt.
select 'R3' as rule,
       format('job %s task %s', t.job_id, t.index) as row,
       format('%s rows may have a process', count(*)) as what
  from xce.task t
 where t.is_open
 group by t.job_id, t.index
having count(*) > 1
union all
select 'R3', format('job %s task %s', t.job_id, t.index),
       format('attempt %s is open, the job is at attempt %s', t.attempt, j.attempt)
  from xce.task t
  join xce.job j on j.id = t.job_id
 where t.is_open
   and t.attempt <> j.attempt
 order by 2
