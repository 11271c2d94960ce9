-- The job of a request that the caller may see; a null user is an operator.
select r.job_id
  from xce.resize_request r
  join xce.job j on j.id = r.job_id
 where r.id = %(request_id)s::bigint
   and (%(user_id)s::bigint is null or j.owner_id = %(user_id)s::bigint)
