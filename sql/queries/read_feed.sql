-- The feed after a cursor: at most `window` rows are read, and of those the caller's are shown; the last
-- one read is told in any case, because reading goes on from it.
with read as materialized (
    select h.era,
           h.xid,
           h.id,
           h.at,
           h.lifecycle,
           h.row_id,
           h.job_id,
           h.attempt,
           h.source,
           h.event,
           h.target,
           h.actor,
           h.reason,
           h.generation
      from xce.read_feed(%(era)s::integer, %(xid)s::xid8, %(id)s::bigint, %(window)s::integer) h
)
select r.era,
       r.xid::text as xid,
       r.id,
       (select count(*) from read) as rows_read,
       v.is_shown,
       j.owner_id,
       r.at,
       r.lifecycle as kind,
       r.row_id,
       r.job_id,
       r.attempt,
       t.index as task,
       o.name as host,
       r.source,
       r.event,
       r.target,
       r.actor,
       r.reason,
       r.generation
  from read r
  left join xce.job j on j.id = r.job_id
  left join xce.task t on r.lifecycle = 'task' and t.id = r.row_id
  left join xce.host o on r.lifecycle = 'host' and o.id = r.row_id
 cross join lateral (
       select (%(user_id)s::bigint is null or coalesce(j.owner_id = %(user_id)s::bigint, false))
              and (%(job_id)s::bigint is null or coalesce(r.job_id = %(job_id)s::bigint, false)) as is_shown
       ) v
 where v.is_shown
    or r.id = (select l.id from read l order by l.era desc, l.xid desc, l.id desc limit 1)
 order by r.era, r.xid, r.id
