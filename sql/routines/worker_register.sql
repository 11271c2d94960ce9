-- Purpose: the host that a worker's login stands for. Never an argument: a login speaks for one host.
-- Locks: none. Raises: RZ404.
create or replace function xce.my_host()
returns xce.host
language plpgsql
stable
as $$
declare
    v_host xce.host;
begin
    select h.* into v_host from xce.host h where h.login = session_user and h.state <> 'removed';
    if not found then
        raise exception 'no host has the login %', session_user using errcode = 'RZ404';
    end if;
    return v_host;
end;
$$;

-- Purpose: a worker's first exchange: it gets a new incarnation and says what lives on its host; the
--   answer names what it may keep. All else it stops before anything new starts (PROTOCOL 29). A lost
--   host returns to `joining`; on any other nothing else changes. p_folder names the worker's run
--   folder: in the same boot, over another folder, a worker cannot see the processes that the last one
--   left, so it is refused for as long as there may be any. Address and fingerprint are those of its
--   port, where it has one.
-- Locks: host, heartbeat. Raises: RZ404, RZ409, RZ422.
create or replace function xce.worker_register(
    p_boot_id text,
    p_version text,
    p_live jsonb,
    p_folder text default null,
    p_address text default null,
    p_fingerprint text default null
)
returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_host xce.host := xce.my_host();
    v_now timestamptz;
    v_fence_s numeric := xce.setting_value('fence_s');
begin
    perform from xce.host h where h.id = v_host.id for no key update;
    v_now := clock_timestamp();
    if exists (select from xce.incarnation i
                where i.host_id = v_host.id and i.incarnation = v_host.incarnation
                  and i.boot_id = p_boot_id and i.run_folder <> p_folder)
       and exists (select from xce.task t
                    where t.host_id = v_host.id and t.state in ('starting', 'running', 'stopping')) then
        raise exception 'tasks of host % may live under another run folder', v_host.name
              using errcode = 'RZ409',
                    hint = 'start the worker over that folder, or end its keeper and reboot or vouch for the host';
    end if;
    update xce.host h
       set incarnation = h.incarnation + 1,
           changed = pg_current_xact_id()
     where h.id = v_host.id
    returning h.* into v_host;
    -- The keeper outlives its worker and may still hold a longer fence that an earlier one was given; it
    -- is known to hold another only when this worker says so with a fetch (PROTOCOL 26).
    insert into xce.incarnation (host_id, incarnation, boot_id, worker_version, run_folder, address, fingerprint,
                                 fence_s_max, started_at)
    select v_host.id, v_host.incarnation, p_boot_id, p_version, p_folder, p_address, p_fingerprint,
           greatest(v_fence_s, max(i.fence_s_max) filter (where i.incarnation = v_host.incarnation - 1)), v_now
      from xce.incarnation i
     where i.host_id = v_host.id;
    insert into xce.heartbeat (host_id, incarnation, last_seen_at)
    values (v_host.id, v_host.incarnation, v_now)
    on conflict (host_id) do update
       set incarnation = excluded.incarnation,
           last_seen_at = excluded.last_seen_at;
    if xce.is_paused() then
        insert into xce.found_task (host_id, job_id, attempt, index, found_at)
        select v_host.id, l.job_id, l.attempt, l.index, v_now
          from jsonb_to_recordset(p_live) as l (job_id bigint, attempt integer, index integer)
            on conflict do nothing;
    end if;
    if v_host.state = 'lost' then
        perform xce.advance_host(v_host.id, 'returned', 'worker', v_now);
    end if;
    return jsonb_build_object(
        'host_id', v_host.id, 'host', v_host.name, 'incarnation', v_host.incarnation,
        'keep', coalesce((
            select jsonb_agg(jsonb_build_object('job_id', t.job_id, 'attempt', t.attempt, 'index', t.index)
                             order by t.job_id, t.index)
              from jsonb_to_recordset(p_live) as l (job_id bigint, attempt integer, index integer, boot_id text)
              join xce.task t on t.job_id = l.job_id and t.attempt = l.attempt and t.index = l.index
             where t.host_id = v_host.id
               and t.state in ('starting', 'running', 'stopping')
               and l.boot_id = p_boot_id), '[]'));
end;
$$;
