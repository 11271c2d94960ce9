-- R1: on every host the resources of all tasks that may have a process, and of holds, fit.
select 'R1' as rule,
       format('host %s', h.name) as row,
       format('cpus %s of %s, memory %s of %s, gpus %s of %s', u.cpus, h.cpus, u.mem_mib, h.mem_mib, u.gpus, h.gpus) as what
  from xce.host h
  join (select x.host_id, sum(x.cpus) as cpus, sum(x.mem_mib) as mem_mib, sum(x.gpus) as gpus
          from (select t.host_id, t.cpus, t.mem_mib, t.gpus
                  from xce.task t
                 where t.is_open
                union all
                select d.host_id, d.tasks * j.cpus, d.tasks * j.mem_mib, d.tasks * j.gpus
                  from xce.hold d
                  join xce.resize_request r on r.id = d.request_id
                  join xce.job j on j.id = r.job_id) x
         group by x.host_id) u on u.host_id = h.id
 where u.cpus > h.cpus
    or u.mem_mib > h.mem_mib
    or u.gpus > h.gpus
 order by h.id
