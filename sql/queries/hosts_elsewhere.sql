-- Hosts that have tasks which may live under another run folder than the one named with each: how many,
-- for how long they still may (null where a job says fence: keep), and that folder's id.
select h.name, i.run_folder, count(*) as tasks,
       case when not bool_or(j.fence = 'keep') then
           greatest(0, extract(epoch from max(b.last_seen_at) - clock_timestamp())
                       + max(i.fence_s_max) + max(coalesce(t.stop_grace_s, j.grace_s)) + 5)
       end as left_s
  from unnest(%(hosts)s::text[], %(folders)s::text[]) as f (name, folder)
  join xce.host h on h.name = f.name and h.state <> 'removed'
  join xce.incarnation i on i.host_id = h.id and i.incarnation = h.incarnation
  join xce.heartbeat b on b.host_id = h.id
  join xce.task t on t.host_id = h.id and t.state in ('starting', 'running', 'stopping')
  join xce.job j on j.id = t.job_id
 where i.run_folder is distinct from f.folder
 group by h.name, i.run_folder
 order by h.name;
