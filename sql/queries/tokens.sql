-- Tokens without what proves them, in order of id. A null filter lets everything pass.
select x.id, x.user, x.role, x.state, x.created_at, x.expires_at, x.revoked_at, x.last_used_at
  from (select t.id,
               u.name as user,
               t.role,
               case when t.revoked_at is not null then 'revoked'
                    when t.expires_at <= clock_timestamp() then 'expired'
                    else 'valid' end as state,
               t.created_at,
               t.expires_at,
               t.revoked_at,
               t.last_used_at
          from xce.token t
          join xce.user_account u on u.id = t.user_id
         where t.id > %(after)s::bigint
           and (%(id)s::bigint is null or t.id = %(id)s::bigint)
           and (%(sees_only)s::bigint is null or t.user_id = %(sees_only)s::bigint)
           and (%(user)s::text is null or u.name = %(user)s::text)
           and (%(roles)s::text[] is null or t.role = any (%(roles)s::text[]))) x
 where %(states)s::text[] is null
    or x.state = any (%(states)s::text[])
 order by x.id
 limit %(limit)s::integer
