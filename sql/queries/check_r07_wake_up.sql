-- R7: whatever waits was looked at: a pending request has a reason after five polls at the most, while
-- there is a leader to give it one; what follows from recorded facts has been fired.
select 'R7' as rule,
       format('request %s', r.id) as row,
       format('pending since %s without a reason', r.created_at) as what
  from xce.resize_request r
 where r.kind <> 'shrink'
   and r.state = 'pending'
   and r.reason is null
   and r.created_at < clock_timestamp() - 5 * xce.seconds(xce.setting_value('poll_s'))
   and exists (select from xce.lease l where l.expires_at > clock_timestamp())
union all
select 'R7', format('request %s', r.id), 'stopping although none of its tasks may have a process'
  from xce.resize_request r
 where r.kind = 'shrink'
   and r.state = 'stopping'
   and not exists (select from xce.task t where t.shrink_id = r.id and t.is_open)
union all
select 'R7', format('job %s', j.id), 'stopping although it has no open task and no open request'
  from xce.job j
 where j.state = 'stopping'
   and not exists (select from xce.task t where t.job_id = j.id and t.is_open)
   and not exists (select from xce.resize_request r where r.job_id = j.id and r.is_open)
union all
select 'R7', format('job %s', t.job_id), format('the loss of task %s was not acted on', t.index)
  from xce.task t
 where t.loss_due
   and not exists (select from xce.resize_request r
                    where r.job_id = t.job_id and r.kind = 'grow' and r.state = 'committed')
 order by 2
