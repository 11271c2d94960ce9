-- The oldest transaction that has written and is open for longer than so many seconds: the feed shows
-- nothing of what began after it. Without pg_read_all_stats its start is hidden; then it is as old as
-- the first row that waits for it.
with writer as (
    select a.pid,
           a.application_name,
           a.xact_start as since,
           age(a.backend_xid) as xids
      from pg_stat_activity a
     where a.backend_xid is not null
     union all
    select null,
           'prepared transaction ' || p.gid,
           p.prepared,
           age(p.transaction)
      from pg_prepared_xacts p
),
dated as (
    select w.pid,
           w.application_name,
           w.xids,
           extract(epoch from clock_timestamp() - coalesce(w.since, xce.held_back_since()))::double precision as age_s
      from writer w
)
select d.pid,
       d.application_name,
       d.age_s
  from dated d
 where d.age_s > %(age_s)s::double precision
 order by d.xids desc
 limit 1
