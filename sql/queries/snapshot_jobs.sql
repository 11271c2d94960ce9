-- Jobs of which a request is pending or placed. Where a shrink waits also their firm tasks (PROTOCOL
-- 10): they run, on a host that is not lost or joining, and not of a committed grow that may be rolled
-- back. A job that ended is read too: a request left behind is the planner's to cancel.
select j.id,
       j.version,
       j.state,
       j.min_tasks,
       j.max_tasks,
       j.cpus,
       j.mem_mib,
       j.gpus,
       coalesce(t.firm, 0),
       (select min(r.id) from xce.resize_request r where r.job_id = j.id and r.is_open and r.state = 'committed'),
       j.span,
       j.existing_hosts,
       j.constraints,
       j.hosts,
       j.exclude_hosts,
       j.priority,
       j.held,
       j.begin_at
  from xce.job j
  left join lateral (
       select count(*) filter (where t.state = 'running' and h.state not in ('lost', 'joining')
                                 and not (r.kind = 'grow' and r.state = 'committed')) as firm
         from xce.task t
         join xce.host h on h.id = t.host_id
         join xce.resize_request r on r.id = t.request_id
        where t.job_id = j.id
          and t.is_open
          and exists (select from xce.resize_request s
                       where s.job_id = j.id and s.is_open and s.kind = 'shrink' and s.state = 'pending')
       ) t on true
 where exists (select from xce.resize_request r
                where r.job_id = j.id and r.is_open and r.state in ('pending', 'placed'))
 order by j.id
