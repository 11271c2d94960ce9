-- Hosts of the open tasks of asking jobs, a host once for each task: of members, and of those that are
-- stopping. Counting is left to the reader: sorting 100,000 tasks by host costs more than sending them.
select t.job_id,
       array_agg(t.host_id) filter (where t.is_member),
       array_agg(t.host_id) filter (where not t.is_member)
  from xce.task t
 where t.is_open
   and t.job_id in (select r.job_id from xce.resize_request r where r.is_open and r.state in ('pending', 'placed'))
 group by t.job_id
