-- Running jobs that could leave a host: they have tasks there, the head not among them, that no open
-- shrink takes.
select t.job_id
  from xce.host h
  join xce.task t on t.host_id = h.id and t.is_open and t.is_member
  join xce.job j on j.id = t.job_id and j.state = 'running'
 where h.name = %(name)s::text
   and h.state <> 'removed'
 group by t.job_id
having bool_and(t.index <> 0)
   and bool_or(t.shrink_id is null)
 order by t.job_id
