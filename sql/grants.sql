-- Who may do what. Group roles without a login; the logins are made at installation. Nothing is
-- granted on a table but reading, and that not to workers: every write goes through a function.

do $$
declare
    v_role text;
begin
    foreach v_role in array array['xce_controller', 'xce_worker']
    loop
        begin
            execute format('create role %I nologin', v_role);
        exception
            when duplicate_object or unique_violation then null;
        end;
    end loop;
end;
$$;

-- Nobody makes types or functions of a session's own: names that a definer's routine does not qualify
-- must mean the same to every caller. (The routines also name pg_temp last.)
do $$
begin
    execute format('revoke temporary on database %I from public', current_database());
end;
$$;

-- Lets /readyz say since when a session of another role holds the feed back. It says less where whoever
-- migrates may not grant this.
do $$
begin
    if not pg_has_role('xce_controller', 'pg_read_all_stats', 'member') then
        grant pg_read_all_stats to xce_controller;
    end if;
exception
    when insufficient_privilege or unique_violation then null;
end;
$$;

-- A database that was upgraded from PostgreSQL 14 still lets everybody create in `public`; and everybody
-- may make large objects, which no schema holds, so a host's login could fill the disk with them. Both
-- belong to whoever made the database: where that is not us, it is theirs to revoke.
do $$
begin
    if to_regnamespace('public') is not null then
        revoke create on schema public from public;
    end if;
    if (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user) then
        revoke execute on function
            pg_catalog.lo_create (oid),
            pg_catalog.lo_creat (integer),
            pg_catalog.lo_from_bytea (oid, bytea)
            from public;
    end if;
exception
    when insufficient_privilege then null;
end;
$$;

revoke all on all functions in schema xce from public;
revoke all on all tables in schema xce from public;
grant usage on schema xce to xce_controller, xce_worker;

grant select on all tables in schema xce to xce_controller;
grant execute on function
    xce.submit_job (jsonb, timestamptz),
    xce.ask_resizes (jsonb, timestamptz),
    xce.cancel_requests (jsonb, timestamptz),
    xce.command_jobs (jsonb, timestamptz),
    xce.wish_host (jsonb, timestamptz),
    xce.put_host (jsonb, timestamptz),
    xce.retire_host (jsonb, timestamptz),
    xce.remove_host (jsonb, timestamptz),
    xce.change_setting (jsonb, timestamptz),
    xce.create_token (jsonb, timestamptz),
    xce.revoke_token (jsonb, timestamptz),
    xce.give_ticket (jsonb, timestamptz),
    xce.take_lease (text),
    xce.drop_lease (text),
    xce.apply_plan (bigint, jsonb, timestamptz),
    xce.sweep_silence (bigint, timestamptz, timestamptz),
    xce.sweep_losses (bigint, timestamptz, timestamptz),
    xce.sweep_deadlines (bigint, timestamptz),
    xce.settle_due (bigint, timestamptz),
    xce.expire_rows (timestamptz),
    xce.touch_tokens (bigint[], double precision[]),
    -- Pure ones that reading queries use.
    xce.setting_value (text),
    xce.seconds (numeric),
    xce.day_begins (date, text),
    xce.staying_members (bigint),
    xce.claimed_tasks (bigint),
    xce.waits_for_host (text, text),
    xce.read_feed (integer, xid8, bigint, integer),
    xce.held_back_since (),
    xce.list_migrations ()
    to xce_controller;

grant execute on function
    xce.worker_register (text, text, jsonb, text, text, text),
    xce.worker_fetch (bigint, boolean, numeric, boolean),
    xce.worker_report (bigint, jsonb),
    xce.worker_redeem (bigint, bytea),
    xce.list_migrations ()
    to xce_worker;

-- Here, because it needs the routines: without its months all history would go to the default partition.
select xce.make_history_months(clock_timestamp());
