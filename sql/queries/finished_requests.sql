-- Those of these requests that are final.
select r.id
  from xce.resize_request r
 where r.id = any (%(ids)s::bigint[])
   and r.finished_at is not null
