-- Whether there is such a job and the caller may see it; a null user is an operator.
select true
  from xce.job j
 where j.id = %(job_id)s::bigint
   and (%(user_id)s::bigint is null or j.owner_id = %(user_id)s::bigint)
