-- Purpose: a partition of history for this month and each of the three to come. Rows of such a month that
--   the default partition has caught meanwhile move along. Months are those of UTC.
-- Locks: advisory HOUSEKEEPING; the tables where something is made. Raises: nothing of its own.
create or replace function xce.make_history_months(p_now timestamptz)
returns void
language plpgsql
as $$
declare
    v_month timestamp;
begin
    for v_month in
        select m from generate_series(date_trunc('month', p_now at time zone 'UTC'),
                                      date_trunc('month', p_now at time zone 'UTC') + interval '3 months',
                                      interval '1 month') as m
         where to_regclass('xce.history_' || to_char(m, 'YYYY_MM')) is null
    loop
        -- Two controllers at once: the second finds it made. Its number is in app/db/locks.py.
        perform pg_advisory_xact_lock(7302, 0);
        perform xce.make_history_month(v_month);
    end loop;
end;
$$;

-- Purpose: make one month's partition, if it is not there yet. Locks: the history tables.
-- Raises: nothing of its own.
create or replace function xce.make_history_month(p_month timestamp)
returns void
language plpgsql
as $$
declare
    v_name text := 'history_' || to_char(p_month, 'YYYY_MM');
    v_from timestamptz := p_month at time zone 'UTC';
    v_to timestamptz := (p_month + interval '1 month') at time zone 'UTC';
begin
    if to_regclass('xce.' || v_name) is not null then
        return;
    end if;
    execute format('create table xce.%I (like xce.history including defaults including constraints)', v_name);
    execute format('with moved as (delete from xce.history_default h where h.at >= %L and h.at < %L returning h.*)'
                   ' insert into xce.%I select * from moved', v_from, v_to, v_name);
    execute format('alter table xce.history attach partition xce.%I for values from (%L) to (%L)', v_name, v_from, v_to);
    execute format('grant select on xce.%I to xce_controller', v_name);
end;
$$;
