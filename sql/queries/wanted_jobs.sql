-- The ids of the jobs that a list shows. A null filter lets everything pass.
select j.id
  from xce.job j
 where j.id > %(after)s::bigint
   and (%(owner_id)s::bigint is null or j.owner_id = %(owner_id)s::bigint)
   and (%(states)s::text[] is null or j.state = any (%(states)s::text[]))
   and (%(name)s::text is null or j.name = %(name)s::text)
   and (%(owner)s::text is null
        or j.owner_id = (select u.id from xce.user_account u where u.name = %(owner)s::text))
   and (%(project)s::text is null
        or j.project_id = (select p.id from xce.project p where p.name = %(project)s::text))
   and (%(queue)s::text is null
        or j.queue_id = (select q.id from xce.queue q where q.name = %(queue)s::text))
 order by j.id
 limit %(limit)s::integer
