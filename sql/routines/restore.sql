-- Purpose: whether this database was restored and waits for an operator's word. Locks: none.
create or replace function xce.is_paused()
returns boolean
language sql
stable
as $$
    select f.restored_at is not null from xce.fence f where f.id = 1
$$;

-- Purpose: begin the time after a restore: era, epoch, incarnations and the numbers of jobs, requests and
--   tasks jump ahead of whatever was given after the backup, so that nothing of the lost future can be
--   taken for something of ours. Nobody leads, places or stops anything until end_restore.
-- Locks: fence, host. Raises: nothing of its own.
create or replace function xce.begin_restore()
returns void
language plpgsql
as $$
declare
    v_ahead bigint := 1000000;
    v_table text;
begin
    update xce.fence f
       set era = f.era + 1,
           epoch = f.epoch + v_ahead,
           restored_at = clock_timestamp()
     where f.id = 1;
    update xce.lease l set holder = null, expires_at = '-infinity' where l.id = 1;
    update xce.host h set incarnation = h.incarnation + v_ahead where h.state <> 'removed';
    update xce.heartbeat b set incarnation = 0;
    delete from xce.found_task;
    foreach v_table in array array['xce.job', 'xce.resize_request', 'xce.task']
    loop
        perform setval(pg_get_serial_sequence(v_table, 'id'),
                       nextval(pg_get_serial_sequence(v_table, 'id')) + v_ahead);
    end loop;
end;
$$;

-- Purpose: hosts that may run something and have not reported since the restore. Locks: none.
create or replace function xce.unreported_hosts()
returns table (name text)
language sql
stable
as $$
    select h.name
      from xce.host h
     cross join xce.fence f
     where h.state in ('joining', 'up', 'draining', 'lost')
       and h.incarnation > 0
       and not exists (select from xce.incarnation i
                        where i.host_id = h.id and i.incarnation = h.incarnation and i.started_at >= f.restored_at)
     order by h.id
$$;

-- Purpose: what lives on the hosts although this database has no open row for it: it was started after
--   the backup. It ends when its worker converges again. Locks: none.
create or replace function xce.unknown_tasks()
returns table (host text, job_id bigint, attempt integer, index integer)
language sql
stable
as $$
    select h.name, u.job_id, u.attempt, u.index
      from xce.found_task u
      join xce.host h on h.id = u.host_id
     where not exists (select from xce.task t
                        where t.host_id = u.host_id and t.job_id = u.job_id and t.attempt = u.attempt
                          and t.index = u.index and t.is_open)
     order by h.id, u.job_id, u.attempt, u.index
$$;

-- Purpose: go on after a restore. Answers the hosts that have not reported and are not named in
--   p_without; then nothing is changed. Locks: fence. Raises: nothing of its own.
create or replace function xce.end_restore(p_without text[])
returns text[]
language plpgsql
as $$
declare
    v_missing text[];
begin
    perform from xce.fence f where f.id = 1 for update;
    v_missing := array(select u.name from xce.unreported_hosts() u where u.name <> all (p_without));
    if v_missing = '{}' then
        update xce.fence f set restored_at = null where f.id = 1;
    end if;
    return v_missing;
end;
$$;
