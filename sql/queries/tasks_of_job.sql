-- Tasks of a job by index and then attempt: those in the states named, else the open ones, or all.
select t.index,
       t.attempt,
       h.name as host,
       t.state,
       t.how,
       nullif(concat_ws('; ', t.reason,
                        case when t.is_open and h.state = 'lost' then xce.waits_for_host(h.name, j.fence) end), '') as reason,
       t.exit_code,
       t.signal,
       t.cpu_used_us * 0.000001 as cpu_used_s,
       t.mem_peak_mib,
       t.request_id,
       t.shrink_id,
       t.assigned_at,
       t.started_at,
       t.ended_at
  from xce.task t
  join xce.host h on h.id = t.host_id
  join xce.job j on j.id = t.job_id
 where t.job_id = %(job_id)s::bigint
   and case when %(states)s::text[] is null then t.is_open or %(all)s::boolean
            else t.state = any (%(states)s::text[]) end
   and (%(host)s::text is null or h.name = %(host)s::text)
   and (t.index, t.attempt) > (%(after_index)s::integer, %(after_attempt)s::integer)
 order by t.index, t.attempt
 limit %(limit)s::integer
