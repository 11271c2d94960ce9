-- What identifies the moment that a tick sees: the snapshot and the database's clock.
select pg_current_snapshot()::text, clock_timestamp()
