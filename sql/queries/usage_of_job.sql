-- What a job was given, from its allocation ranges alone, in whole microseconds; open ranges count up
-- to now. What its tasks made of it is what their hosts measured.
select %(job_id)s::bigint as job_id,
       statement_timestamp() as as_of,
       a.task_us,
       a.cpu_us,
       a.mem_mib_us,
       a.gpu_us,
       m.cpu_used_us,
       m.mem_peak_mib
  from (
       select coalesce(sum(r.us), 0) as task_us,
              coalesce(sum(r.us * r.cpus), 0) as cpu_us,
              coalesce(sum(r.us::numeric * r.mem_mib), 0) as mem_mib_us,
              coalesce(sum(r.us * r.gpus), 0) as gpu_us
         from (
              select l.cpus,
                     l.mem_mib,
                     l.gpus,
                     greatest(0, (extract(epoch from
                         coalesce(upper(l.during), statement_timestamp()) - lower(l.during)
                     ) * 1000000)::bigint) as us
                from xce.allocation l
               where l.job_id = %(job_id)s::bigint
                 and not isempty(l.during)
              ) r
       ) a,
       (
       select coalesce(sum(t.cpu_used_us), 0) as cpu_used_us,
              max(t.mem_peak_mib) as mem_peak_mib
         from xce.task t
        where t.job_id = %(job_id)s::bigint
       ) m
