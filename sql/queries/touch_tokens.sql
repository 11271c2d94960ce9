-- When tokens were last used.
select xce.touch_tokens(%(ids)s::bigint[], %(ages_s)s::double precision[])
