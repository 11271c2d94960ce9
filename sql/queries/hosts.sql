-- Hosts with what is used, what is held and when they were last heard; follows a CTE `wanted (id)`.
select h.id,
       h.name,
       h.state,
       -- Silent, and not judged yet, or not at all while many are (PROTOCOL 32).
       case when h.state in ('joining', 'up', 'draining') and b.last_seen_at < s.since then 'silent' else h.reason end as reason,
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
 cross join (select clock_timestamp() - xce.seconds(xce.setting_value('silent_s')) as since offset 0) s
 order by h.id
