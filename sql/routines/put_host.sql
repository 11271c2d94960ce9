-- Purpose: make a host known, in `joining`, or give a known one another size and other labels. The
--   login of a new one gets its password from `xce host add NAME`; until then nobody speaks for it.
-- Locks: host, idempotency key. Raises: RZ422; unique_violation when two made one name: the caller
--   runs it again.
create or replace function xce.put_host(p_call jsonb, p_now timestamptz default null)
returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_user bigint := (p_call ->> 'user_id')::bigint;
    v_opened record;
    v_host xce.host;
    v_now timestamptz;
    v_status integer := 200;
    v_answer jsonb;
begin
    select c.* into v_opened from xce.open_host_call(p_call, 'add or change', true) c;
    v_host := v_opened.host;
    v_answer := v_opened.answer;
    if v_answer is not null then
        return v_answer;
    end if;
    v_now := coalesce(p_now, clock_timestamp());
    if v_host.id is null then
        v_status := 201;
        v_host.id := xce.insert_host(p_call ->> 'name', p_call ->> 'login', p_call -> 'size', v_user, v_now);
    else
        v_answer := xce.refuse_host_size(v_host, p_call -> 'size');
        if v_answer is not null then
            return v_answer;
        end if;
        perform xce.resize_host(v_host, p_call -> 'size', v_user, v_now);
    end if;
    perform xce.keep_key(p_call, v_status, 'host', v_host.id, v_now);
    return xce.acceptance(v_status, v_host.id, array['xce_plan', 'xce_host_' || v_host.id, 'xce_watch']);
end;
$$;

-- Purpose: the row and first history of a host. Locks: host (new). Raises: unique_violation.
create or replace function xce.insert_host(p_name text, p_login text, p_size jsonb, p_user bigint, p_now timestamptz)
returns bigint
language plpgsql
as $$
declare
    v_id bigint;
begin
    insert into xce.host (name, login, state, reason, cpus, mem_mib, gpus, labels)
    values (p_name, p_login, 'joining',
            format('its worker has not registered yet; `xce host add %s` gives its login a password', p_name),
            (p_size ->> 'cpus')::integer, (p_size ->> 'mem_mib')::bigint, (p_size ->> 'gpus')::integer, p_size -> 'labels')
    returning id into v_id;
    insert into xce.history (lifecycle, row_id, version, at, source, event, target, actor, actor_id, detail, era)
    values ('host', v_id, 1, p_now, 'none', 'register', 'joining', 'operator', p_user,
            p_size || jsonb_build_object('name', p_name), xce.era());
    return v_id;
end;
$$;

-- Purpose: refuse a size below what is used and held, or null. Locks: none.
create or replace function xce.refuse_host_size(p_host xce.host, p_size jsonb)
returns jsonb
language sql
stable
as $$
    select xce.refusal('drain_first',
                       format('host %s has more in use or held than that; drain it first, or leave it its %s cpus, '
                              '%s MiB and %s gpus', p_host.name, u.cpus, u.mem_mib, u.gpus),
                       jsonb_build_object('cpus_used', p_host.cpus_used, 'cpus_held', p_host.cpus_held,
                                          'mem_mib_used', p_host.mem_mib_used, 'mem_mib_held', p_host.mem_mib_held,
                                          'gpus_used', p_host.gpus_used, 'gpus_held', p_host.gpus_held))
      from (select p_host.cpus_used + p_host.cpus_held as cpus, p_host.mem_mib_used + p_host.mem_mib_held as mem_mib,
                   p_host.gpus_used + p_host.gpus_held as gpus) u
     where (p_size ->> 'cpus')::integer < u.cpus
        or (p_size ->> 'mem_mib')::bigint < u.mem_mib
        or (p_size ->> 'gpus')::integer < u.gpus
$$;

-- Purpose: write another size and other labels, with history where anything changes.
-- Locks: host (held). Raises: RZ422.
create or replace function xce.resize_host(p_host xce.host, p_size jsonb, p_user bigint, p_now timestamptz)
returns void
language plpgsql
as $$
begin
    if p_size = jsonb_build_object('cpus', p_host.cpus, 'mem_mib', p_host.mem_mib, 'gpus', p_host.gpus,
                                   'labels', p_host.labels) then
        return;
    end if;
    update xce.host h
       set cpus = (p_size ->> 'cpus')::integer,
           mem_mib = (p_size ->> 'mem_mib')::bigint,
           gpus = (p_size ->> 'gpus')::integer,
           labels = p_size -> 'labels'
     where h.id = p_host.id;
    perform xce.advance_host(p_host.id, 'wish', 'operator', p_now, p_host.reason, null, p_user, p_size);
end;
$$;
