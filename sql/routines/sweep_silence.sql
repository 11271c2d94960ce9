-- Purpose: hosts silent for the silent time are lost; their assigned tasks are withdrawn in the same
--   transaction, because until the worker returns it can neither claim nor report (PROTOCOL 28).
--   Judged again under the locks; a host that a job came to since its jobs were locked is left to the
--   next pass. Nothing is judged, and the verdict says why, when this clock is more than 2 s away from
--   p_expected, the caller's last `at` plus what its own monotonic clock counted since ("jumped", and
--   fences count anew), or when three hosts or more and over `mass_loss_percent` of all fall silent
--   together ("paused", PROTOCOL 32).
-- Locks: fence, job, request, task, host, heartbeat, each ascending. Raises: RZ410, RZ422.
create or replace function xce.sweep_silence(
    p_epoch bigint,
    p_now timestamptz default null,
    p_expected timestamptz default null
)
returns table (rings text[], at timestamptz, verdict text, silent bigint)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_hosts bigint[];
    v_jobs bigint[];
    v_out xce.effects := row('{}', '{}', '{}')::xce.effects;
    v_host bigint;
begin
    perform xce.pass_fence(p_epoch);
    at := coalesce(p_now, clock_timestamp());
    v_hosts := array(select h.id from xce.silent_hosts(at) h order by h.id);
    rings := '{}';
    silent := cardinality(v_hosts);
    verdict := case when xce.is_far(at, p_expected) then 'jumped'
                    when silent > 0 and xce.is_mass_loss(at) then 'paused'
                    else 'judged' end;
    if verdict = 'jumped' then
        insert into xce.clock_jump (at, expected_at) values (sweep_silence.at, p_expected);
    end if;
    if verdict <> 'judged' or silent = 0 then
        return next;
        return;
    end if;
    v_jobs := array(select distinct t.job_id from xce.task t where t.host_id = any (v_hosts) and t.is_open order by 1);
    perform xce.lock_silent(v_hosts, v_jobs);
    at := coalesce(p_now, clock_timestamp());
    for v_host in
        select s.id
          from xce.silent_hosts(at) s
         where s.id = any (v_hosts)
           and not exists (select from xce.task t where t.host_id = s.id and t.is_open and t.job_id <> all (v_jobs))
         order by s.id
    loop
        v_out := xce.join_effects(v_out, xce.mark_lost(v_host, p_epoch, at));
    end loop;
    v_out := xce.join_effects(v_out, xce.settle_jobs(v_jobs, at));
    rings := xce.free_hosts(v_out, at);
    return next;
end;
$$;

-- Purpose: whether a clock is away from where it should be; not where nobody can tell. Locks: none.
create or replace function xce.is_far(p_at timestamptz, p_expected timestamptz)
returns boolean
language sql
immutable
as $$
    select coalesce(abs(extract(epoch from p_at - p_expected)) > 2, false)
$$;

-- Purpose: whether so many hosts fall silent together that the network is likelier than they (PROTOCOL
--   32). Heartbeats of hosts that were cut off at one moment are up to an interval apart, so those that are
--   silent but for one interval count too, and those that were judged within the last one.
-- Locks: none.
create or replace function xce.is_mass_loss(p_now timestamptz)
returns boolean
language sql
stable
as $$
    select count(*) filter (where x.last_seen_at < p_now - xce.seconds(s.silent_s - s.heartbeat_s)) >= 3
       and count(*) filter (where x.last_seen_at < p_now - xce.seconds(s.silent_s - s.heartbeat_s))
           > xce.setting_value('mass_loss_percent') / 100 * count(*)
      from (select xce.setting_value('silent_s') as silent_s, xce.setting_value('heartbeat_s') as heartbeat_s offset 0) s
     cross join lateral (
           select h.last_seen_at from xce.heard_hosts() h
           union all
           select b.last_seen_at
             from xce.host h
             join xce.heartbeat b on b.host_id = h.id
            where h.state = 'lost'
              and b.last_seen_at >= p_now - xce.seconds(s.silent_s + s.heartbeat_s)
           ) x
$$;

-- Purpose: hosts of which a worker registered once and that are not lost or down. Locks: none.
create or replace function xce.heard_hosts()
returns table (id bigint, last_seen_at timestamptz)
language sql
stable
as $$
    select h.id, b.last_seen_at
      from xce.host h
      join xce.heartbeat b on b.host_id = h.id
     where h.state in ('joining', 'up', 'draining')
$$;

-- Purpose: lock all that losing these hosts may touch, for all of them at once: one host after the
--   other would take a job while it holds a host. Settling their jobs may free other hosts, which
--   are taken with the silent ones for the same reason.
-- Locks: job, request, task, host, heartbeat, each ascending. Raises: nothing.
create or replace function xce.lock_silent(p_hosts bigint[], p_jobs bigint[])
returns void
language plpgsql
as $$
begin
    perform from xce.job j where j.id = any (p_jobs) order by j.id for no key update;
    perform from xce.resize_request r where r.job_id = any (p_jobs) and r.is_open order by r.id for no key update;
    perform from xce.task t
      where (t.host_id = any (p_hosts) or t.job_id = any (p_jobs)) and t.is_open
      order by t.id for no key update;
    perform from xce.host h
      where h.id = any (p_hosts)
         or h.id in (select t.host_id from xce.task t where t.job_id = any (p_jobs) and t.is_open)
         or h.id in (select d.host_id from xce.hold d
                       join xce.resize_request r on r.id = d.request_id
                      where r.job_id = any (p_jobs))
      order by h.id for no key update;
    perform from xce.heartbeat b where b.host_id = any (p_hosts) order by b.host_id for update;
end;
$$;

-- Purpose: hosts that registered once and were silent since for the silent time. Locks: none.
create or replace function xce.silent_hosts(p_now timestamptz)
returns table (id bigint)
language sql
stable
as $$
    select h.id
      from xce.heard_hosts() h
     where h.last_seen_at < p_now - xce.seconds(xce.setting_value('silent_s'))
$$;

-- Purpose: declare one silent host lost, whose locks and jobs the caller holds. What was assigned there
--   cannot come back with the host, so `on_host_loss` need not wait where it belonged to a start.
-- Locks: none of its own. Raises: RZ422.
create or replace function xce.mark_lost(p_host bigint, p_epoch bigint, p_now timestamptz)
returns xce.effects
language plpgsql
as $$
declare
    v_assigned bigint[];
    v_out xce.effects := row('{}', '{}', array['xce_plan', 'xce_watch'])::xce.effects;
begin
    perform xce.advance_host(p_host, 'silent', 'controller', p_now, 'silent', p_epoch);
    update xce.heartbeat b set incarnation = 0 where b.host_id = p_host;
    v_assigned := array(select t.id from xce.task t where t.host_id = p_host and t.state = 'assigned' order by t.id);
    if cardinality(v_assigned) > 0 then
        perform xce.raise_generation(array(select distinct t.job_id from xce.task t where t.id = any (v_assigned)), true);
        v_out := xce.join_effects(v_out, xce.take_back_tasks(v_assigned, 'controller', 'host_lost', p_now,
                                                             p_reason => 'its host is lost', p_epoch => p_epoch));
        perform xce.note_losses(v_assigned);
    end if;
    return v_out;
end;
$$;
