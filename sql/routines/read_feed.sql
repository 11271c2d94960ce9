-- Purpose: the rows of history after a place in the feed, in the order of (era, transaction, id). No row is
--   given while a transaction that is older than its own is open: that one could still commit a row
--   before it, which whoever read past would never see. Rows of earlier eras have none to wait for.
-- Locks: none. Raises: nothing.
create or replace function xce.read_feed(
    p_era integer,
    p_xid xid8,
    p_id bigint,
    p_window integer
)
returns table (era integer, xid xid8, id bigint, at timestamptz, lifecycle text, row_id bigint, job_id bigint,
               attempt integer, source text, event text, target text, actor text, reason text, generation bigint)
language sql
stable
-- The planner takes a comparison of rows for one of their first columns, hence expects nothing after the
-- place and would sort all that there is. Without sorting it merges the months' indexes and stops.
set enable_sort = off
as $$
    select h.era, h.xid, h.id, h.at, h.lifecycle, h.row_id, h.job_id, h.attempt, h.source, h.event, h.target,
           h.actor, h.reason, h.generation
      from xce.history h
     where (h.era, h.xid, h.id) > (p_era, p_xid, p_id)
       and (h.era, h.xid) < ((select f.era from xce.fence f), pg_snapshot_xmin(pg_current_snapshot()))
     order by h.era, h.xid, h.id
     limit p_window
$$;

-- Purpose: since when the feed holds rows back: the time of the first row that waits for an older
--   transaction; null where none does. Locks: none. Raises: nothing.
create or replace function xce.held_back_since()
returns timestamptz
language sql
stable
-- As above; here it would expect any row to do, and look through all of them for one.
set enable_sort = off
as $$
    select h.at
      from xce.history h
     where (h.era, h.xid) >= ((select f.era from xce.fence f), pg_snapshot_xmin(pg_current_snapshot()))
     order by h.era, h.xid, h.id
     limit 1
$$;
