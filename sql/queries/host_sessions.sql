-- Who is connected as the worker of one of these hosts.
select h.name, coalesce(host(a.client_addr), 'this machine') as address, a.pid
  from xce.host h
  join pg_catalog.pg_stat_activity a on a.usename = h.login
 where h.name = any (%(hosts)s::text[])
   and h.state <> 'removed'
   and a.datname = pg_catalog.current_database()
 order by h.name, a.pid;
