-- Purpose: what a program must know before it runs on this database; also told to workers, which may
--   read no table. Locks: none.
create or replace function xce.list_migrations()
returns table (name text, sha256 text, is_breaking boolean)
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
    select m.name, m.sha256, m.is_breaking from xce.migration m
$$;
