-- Hosts that may hold something. Schedulable: up, not to be drained, heard of within the silent time.
with s as materialized (
    select clock_timestamp() - xce.seconds(xce.setting_value('silent_s')) as since
)
select h.id,
       h.name,
       h.cpus,
       h.mem_mib,
       h.gpus,
       h.cpus - h.cpus_used - h.cpus_held,
       h.mem_mib - h.mem_mib_used - h.mem_mib_held,
       h.gpus - h.gpus_used - h.gpus_held,
       h.state = 'up' and not h.drain_wanted and coalesce(b.last_seen_at >= s.since, false),
       nullif(h.labels, '{}')
  from xce.host h
  left join xce.heartbeat b on b.host_id = h.id
 -- Materialized, or the setting is looked up once for each host.
 cross join s
 where h.state in ('joining', 'up', 'draining', 'lost')
 order by h.id
