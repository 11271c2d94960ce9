-- The tasks whose capacity a job had at one moment; a null moment is now.
select l.task_index as index,
       l.attempt,
       h.name as host,
       l.cpus,
       l.mem_mib,
       l.gpus,
       lower(l.during) as since,
       upper(l.during) as until
  from xce.allocation l
  join xce.host h on h.id = l.host_id
 where l.job_id = %(job_id)s::bigint
   and case when %(as_of)s::timestamptz is null then upper_inf(l.during) and not isempty(l.during)
            else l.during @> %(as_of)s::timestamptz end
 order by l.task_index, l.attempt
