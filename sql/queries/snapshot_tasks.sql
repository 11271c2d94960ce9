-- Open tasks of asking jobs as counts for each host: members, and those that are stopping.
select t.job_id,
       t.host_id,
       count(*) filter (where t.is_member),
       count(*) filter (where not t.is_member)
  from xce.task t
 where t.is_open
   and exists (select from xce.resize_request r
                where r.job_id = t.job_id and r.is_open and r.state in ('pending', 'placed'))
 group by t.job_id, t.host_id
 order by t.job_id, t.host_id
