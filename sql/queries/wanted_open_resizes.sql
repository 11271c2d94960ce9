-- The ids of all open requests that a caller may see, of whatever job. They are few beside those that
-- ended: the partial index has them, and they are sorted by id afterwards.
select r.id
  from xce.resize_request r
  join xce.job o on o.id = r.job_id
 where r.is_open
   and r.id > %(after)s::bigint
   and (%(kinds)s::text[] is null or r.kind = any (%(kinds)s::text[]))
   and (%(states)s::text[] is null or r.state = any (%(states)s::text[]))
   and (%(user_id)s::bigint is null or o.owner_id = %(user_id)s::bigint)
 order by r.id
 limit %(limit)s::integer
