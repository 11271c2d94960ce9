-- R9: slots were freed on recorded evidence only, and no job has ended before its tasks.
select 'R9' as rule,
       format('job %s task %s', t.job_id, t.index) as row,
       'ended without evidence in history' as what
  from xce.task t
 where not t.is_open
   and not exists (select from xce.history h
                    where h.lifecycle = 'task' and h.row_id = t.id and h.event in ('withdraw', 'gone', 'lost'))
union all
select 'R9', format('job %s task %s', t.job_id, t.index), format('is %s although the job is %s', t.state, j.state)
  from xce.task t
  join xce.job j on j.id = t.job_id
 where t.is_open
   and not j.is_open
union all
select 'R9', format('job %s task %s', t.job_id, t.index), format('is %s although its host %s is %s', t.state, h.name, h.state)
  from xce.task t
  join xce.host h on h.id = t.host_id
 where t.is_open
   and h.state in ('down', 'removed')
union all
select 'R9', format('job %s task %s', t.job_id, t.index), 'was given up by the clock although its job says fence: keep'
  from xce.task t
  join xce.job j on j.id = t.job_id
  join xce.history x on x.lifecycle = 'task' and x.row_id = t.id and x.event = 'lost'
 where t.how = 'lost'
   and j.fence = 'keep'
   and x.detail ->> 'evidence' = 'fence'
 order by 2
