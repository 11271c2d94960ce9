-- The cursor behind all that the feed shows now and before all that it will show, and whether rows
-- wait already for an older transaction to end.
select f.era,
       pg_snapshot_xmin(pg_current_snapshot())::text,
       xce.held_back_since() is not null
  from xce.fence f
