-- Starts and grows that are pending or placed, with their holds; ids ascend in the order of asking.
select r.id,
       r.version,
       r.job_id,
       r.kind,
       r.state,
       r.tasks_min,
       r.tasks_max,
       r.hosts,
       r.exclude_hosts,
       r.existing_hosts,
       r.reason,
       r.deadline_at,
       array(select d.host_id from xce.hold d where d.request_id = r.id order by d.host_id),
       array(select d.tasks from xce.hold d where d.request_id = r.id order by d.host_id)
  from xce.resize_request r
 where r.is_open
   and r.kind <> 'shrink'
   and r.state in ('pending', 'placed')
 order by r.id
