-- The ids of a job's requests that a list shows: the kinds named, else grows and shrinks, and starts
-- when all are asked for.
select r.id
  from xce.resize_request r
 where r.job_id = %(job_id)s::bigint
   and r.id > %(after)s::bigint
   and case when %(kinds)s::text[] is null then %(all)s::boolean or r.kind <> 'start'
            else r.kind = any (%(kinds)s::text[]) end
   and (%(states)s::text[] is null or r.state = any (%(states)s::text[]))
 order by r.id
 limit %(limit)s::integer
