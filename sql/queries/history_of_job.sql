-- A job's history, its requests' and its tasks' included, in order of time; within a moment as written,
-- so that a cause comes before what follows from it.
select h.at,
       h.lifecycle as kind,
       h.source,
       h.event,
       h.target,
       h.actor,
       h.reason,
       h.detail,
       h.generation,
       h.attempt,
       extract(epoch from h.at - (
           select p.at
             from xce.history p
            where p.lifecycle = h.lifecycle
              and p.row_id = h.row_id
              and p.version < h.version
            order by p.version desc
            limit 1
       )) as since_previous_s,
       h.row_id,
       h.id,
       t.index as task
  from xce.history h
  left join xce.task t on h.lifecycle = 'task' and t.id = h.row_id
 where h.job_id = %(job_id)s::bigint
   and (%(request_id)s::bigint is null
        or (h.row_id = %(request_id)s::bigint and h.lifecycle in ('start', 'grow', 'shrink')))
   and (h.at, h.id) > (%(after_at)s::timestamptz, %(after_id)s::bigint)
 order by h.at, h.id
 limit %(limit)s::integer
