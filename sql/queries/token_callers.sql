-- Who bears these tokens; what is unknown, revoked or expired has no row.
select t.sha256,
       t.id,
       t.role,
       u.id,
       u.name
  from xce.token t
  join xce.user_account u on u.id = t.user_id
 where t.sha256 = any (%(hashes)s::bytea[])
   and t.revoked_at is null
   and (t.expires_at is null or t.expires_at > clock_timestamp())
   and (t.role <> 'operator' or u.is_operator)
