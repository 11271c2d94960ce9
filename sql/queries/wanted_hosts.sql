-- The ids of the hosts that a list shows, or of the one named.
select h.id
  from xce.host h
 where h.id > %(after)s::bigint
   and (case when %(states)s::text[] is null then h.state <> 'removed'
             else h.state = any (%(states)s::text[]) end)
   and (%(name)s::text is null or h.name = %(name)s::text)
 order by h.id
 limit %(limit)s::integer
