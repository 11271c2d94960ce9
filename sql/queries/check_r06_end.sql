-- R6: a request that ended without what it asked for says why; none is open once its job has ended.
select 'R6' as rule,
       format('request %s', r.id) as row,
       format('%s without a reason', r.state) as what
  from xce.resize_request r
 where r.state in ('cancelled', 'failed')
   and r.reason is null
union all
select 'R6', format('request %s', r.id), format('is %s although job %s is %s', r.state, j.id, j.state)
  from xce.resize_request r
  join xce.job j on j.id = r.job_id
 where r.is_open
   and not j.is_open
union all
-- Readable for as long as history is kept: what is in the default partition cannot be dropped by month.
select 'R6', format('history of %s', to_char(h.at, 'YYYY-MM')), format('%s rows are in the default partition', count(*))
  from xce.history_default h
 group by to_char(h.at, 'YYYY-MM')
 order by 2
