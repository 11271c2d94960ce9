-- Whether a task that somebody follows has ended, and whether the follower's token still lives.
select not exists (
           select from xce.task t
            where t.job_id = %(job_id)s::bigint
              and t.attempt = %(attempt)s::integer
              and t.index = %(index)s::integer
              and t.is_open
       ) as is_ended,
       exists (
           select from xce.token k
             join xce.user_account u on u.id = k.user_id
            where k.id = %(token_id)s::bigint
              and k.revoked_at is null
              and (k.expires_at is null or k.expires_at > clock_timestamp())
              and (k.role <> 'operator' or u.is_operator)
       ) as is_allowed
