-- The ids of a job's requests that a list shows: grows and shrinks, and starts when all are asked for.
select r.id
  from xce.resize_request r
 where r.job_id = %(job_id)s::bigint
   and r.id > %(after)s::bigint
   and (%(all)s::boolean or r.kind <> 'start')
 order by r.id
 limit %(limit)s::integer
