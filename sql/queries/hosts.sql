-- Hosts with what is used, what is held and when they were last heard; follows a CTE `wanted (id)`.
select h.id,
       h.name,
       h.state,
       h.reason,
       h.drain_wanted,
       h.cpus,
       h.mem_mib,
       h.gpus,
       h.labels,
       h.cpus_used,
       h.cpus_held,
       h.mem_mib_used,
       h.mem_mib_held,
       h.gpus_used,
       h.gpus_held,
       b.last_seen_at
  from wanted w
  join xce.host h on h.id = w.id
  left join xce.heartbeat b on b.host_id = h.id
 order by h.id
