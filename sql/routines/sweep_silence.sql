-- Purpose: hosts silent for the silent time are lost; their assigned tasks are withdrawn in the same
--   transaction, because until the worker returns it can neither claim nor report (PROTOCOL 28).
-- Locks: fence, job, request, task, host, heartbeat, each ascending. Raises: RZ410, RZ422.
create or replace function xce.sweep_silence(p_epoch bigint, p_now timestamptz default null)
returns text[]
language plpgsql
security definer
set search_path = pg_catalog
as $$
declare
    v_rings text[] := '{}';
    v_host bigint;
begin
    perform xce.pass_fence(p_epoch);
    for v_host in select h.id from xce.silent_hosts(coalesce(p_now, clock_timestamp())) h order by h.id
    loop
        v_rings := v_rings || xce.lose_host(v_host, p_epoch, p_now);
    end loop;
    return xce.distinct_rings(v_rings);
end;
$$;

-- Purpose: hosts that registered once and were silent since for the silent time. Locks: none.
create or replace function xce.silent_hosts(p_now timestamptz)
returns table (id bigint)
language sql
stable
as $$
    select h.id
      from xce.host h
      join xce.heartbeat b on b.host_id = h.id
     where h.state in ('joining', 'up', 'draining')
       and b.last_seen_at < p_now - xce.seconds(xce.setting_value('silent_s'))
$$;

-- Purpose: declare one silent host lost, judged again under its locks; where a job came to it since
--   its jobs were locked, this pass leaves it to the next.
-- Locks: job, request, task, host, heartbeat. Raises: RZ422.
create or replace function xce.lose_host(p_host bigint, p_epoch bigint, p_now timestamptz)
returns text[]
language plpgsql
as $$
declare
    v_now timestamptz;
    v_jobs bigint[];
    v_assigned bigint[];
    v_out xce.effects := row('{}', '{}', '{}')::xce.effects;
begin
    v_jobs := array(select distinct t.job_id from xce.task t where t.host_id = p_host and t.is_open order by 1);
    perform from xce.job j where j.id = any (v_jobs) order by j.id for no key update;
    perform from xce.task t where t.host_id = p_host and t.is_open order by t.id for no key update;
    perform from xce.host h where h.id = p_host for no key update;
    perform from xce.heartbeat b where b.host_id = p_host for update;
    v_now := coalesce(p_now, clock_timestamp());
    if not exists (select from xce.silent_hosts(v_now) s where s.id = p_host)
       or exists (select from xce.task t where t.host_id = p_host and t.is_open and t.job_id <> all (v_jobs)) then
        return '{}';
    end if;
    perform xce.advance_host(p_host, 'silent', 'controller', v_now, 'silent', p_epoch);
    update xce.heartbeat b set incarnation = 0 where b.host_id = p_host;
    v_assigned := array(select t.id from xce.task t where t.host_id = p_host and t.state = 'assigned' order by t.id);
    if cardinality(v_assigned) > 0 then
        perform xce.raise_generation(array(select distinct t.job_id from xce.task t where t.id = any (v_assigned)), true);
        v_out := xce.take_back_tasks(v_assigned, 'controller', 'host_lost', v_now,
                                     p_reason => 'its host is lost', p_epoch => p_epoch);
    end if;
    v_out := xce.join_effects(v_out, xce.settle_jobs(v_jobs, v_now));
    return xce.free_hosts(v_out, v_now) || array['xce_plan', 'xce_watch'];
end;
$$;
