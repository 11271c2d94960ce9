-- Purpose: give the room of ended tasks and dropped holds back to their hosts, once, at the end of a
--   routine, because hosts are locked last; an emptied draining host goes down.
-- Locks: host, ascending. Raises: nothing of its own.
create or replace function xce.free_hosts(p_effects xce.effects, p_now timestamptz)
returns text[]
language plpgsql
as $$
declare
    v_hosts bigint[];
    v_host bigint;
begin
    if (p_effects).ended = '{}' and (p_effects).unheld = '{}' then
        return xce.distinct_rings((p_effects).rings);
    end if;
    select array_agg(distinct x.host_id) into v_hosts
      from (select t.host_id from xce.task t where t.id = any ((p_effects).ended)
            union all
            select h.host_id from xce.hold h where h.request_id = any ((p_effects).unheld)) x;
    if v_hosts is null then
        return xce.distinct_rings((p_effects).rings);
    end if;
    perform from xce.host h where h.id = any (v_hosts) order by h.id for no key update;
    with freed as (
        select t.host_id, sum(t.cpus) as cpus, sum(t.mem_mib) as mem_mib, sum(t.gpus) as gpus
          from xce.task t
         where t.id = any ((p_effects).ended)
         group by t.host_id
    ),
    unheld as (
        select h.host_id, sum(h.tasks * j.cpus) as cpus, sum(h.tasks * j.mem_mib) as mem_mib,
               sum(h.tasks * j.gpus) as gpus
          from xce.hold h
          join xce.resize_request r on r.id = h.request_id
          join xce.job j on j.id = r.job_id
         where h.request_id = any ((p_effects).unheld)
         group by h.host_id
    )
    update xce.host h
       set cpus_used = h.cpus_used - coalesce(f.cpus, 0),
           mem_mib_used = h.mem_mib_used - coalesce(f.mem_mib, 0),
           gpus_used = h.gpus_used - coalesce(f.gpus, 0),
           cpus_held = h.cpus_held - coalesce(u.cpus, 0),
           mem_mib_held = h.mem_mib_held - coalesce(u.mem_mib, 0),
           gpus_held = h.gpus_held - coalesce(u.gpus, 0),
           changed = pg_current_xact_id()
      from unnest(v_hosts) as i (id)
      left join freed f on f.host_id = i.id
      left join unheld u on u.host_id = i.id
     where h.id = i.id;
    delete from xce.hold h where h.request_id = any ((p_effects).unheld);
    for v_host in
        select h.id from xce.host h where h.id = any (v_hosts) and h.drain_wanted order by h.id
    loop
        perform xce.settle_host(v_host, p_now);
    end loop;
    return xce.distinct_rings(array_append((p_effects).rings, 'xce_plan'));
end;
$$;

-- Purpose: fire the edges of a host that follow from recorded facts: the drain wish, and emptiness.
-- Locks: host. Raises: RZ422.
create or replace function xce.settle_host(p_host bigint, p_now timestamptz)
returns void
language plpgsql
as $$
declare
    v_host xce.host;
begin
    select h.* into v_host from xce.host h where h.id = p_host for no key update;
    if not v_host.drain_wanted then
        return;
    end if;
    if v_host.state = 'up' then
        perform xce.advance_host(p_host, 'drain', 'controller', p_now, 'drain wanted');
        v_host.state := 'draining';
    end if;
    if v_host.state = 'draining'
       and not exists (select from xce.task t where t.host_id = p_host and t.is_open)
       and not exists (select from xce.hold h where h.host_id = p_host) then
        perform xce.advance_host(p_host, 'emptied', 'controller', p_now, 'drained');
    end if;
end;
$$;
