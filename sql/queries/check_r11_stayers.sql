-- R11: a shrink stopped no task that it does not name, a failed grow none that it did not bring.
select 'R11' as rule,
       format('job %s task %s', t.job_id, t.index) as row,
       format('was stopped by a %s that did not name it', t.stop_cause) as what
  from xce.task t
  left join xce.resize_request r on r.id = t.shrink_id
 where t.stop_cause = 'shrink'
   and (r.id is null or t.index <> all (r.task_indices))
    or t.stop_cause = 'rollback'
   and not exists (select from xce.resize_request g
                    where g.id = t.request_id
                      and (g.state = 'failed' or g.state in ('committed', 'running') and t.outcome = 'failed'))
 order by 2
