-- R4: every counter equals a recount; a request has holds exactly while it is placed.
select 'R4' as rule,
       format('host %s', h.name) as row,
       format('counts cpus %s used %s held, memory %s used %s held, gpus %s used %s held; recounted %s %s, %s %s, %s %s',
              h.cpus_used, h.cpus_held, h.mem_mib_used, h.mem_mib_held, h.gpus_used, h.gpus_held,
              u.cpus, d.cpus, u.mem_mib, d.mem_mib, u.gpus, d.gpus) as what
  from xce.host h
 cross join lateral (
       select coalesce(sum(t.cpus), 0) as cpus, coalesce(sum(t.mem_mib), 0) as mem_mib, coalesce(sum(t.gpus), 0) as gpus
         from xce.task t
        where t.host_id = h.id
          and t.is_open
       ) u
 cross join lateral (
       select coalesce(sum(x.tasks * j.cpus), 0) as cpus, coalesce(sum(x.tasks * j.mem_mib), 0) as mem_mib,
              coalesce(sum(x.tasks * j.gpus), 0) as gpus
         from xce.hold x
         join xce.resize_request r on r.id = x.request_id
         join xce.job j on j.id = r.job_id
        where x.host_id = h.id
       ) d
 where (h.cpus_used, h.mem_mib_used, h.gpus_used, h.cpus_held, h.mem_mib_held, h.gpus_held)
    <> (u.cpus, u.mem_mib, u.gpus, d.cpus, d.mem_mib, d.gpus)
union all
select 'R4', format('request %s', r.id),
       format('is %s and has holds for %s tasks', r.state, coalesce(x.tasks, 0))
  from xce.resize_request r
  left join (select d.request_id, sum(d.tasks) as tasks from xce.hold d group by d.request_id) x on x.request_id = r.id
 where (r.state = 'placed') <> (coalesce(x.tasks, 0) > 0)
 order by 2
