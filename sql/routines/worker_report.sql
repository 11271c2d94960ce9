-- Purpose: record what a worker saw of its host's tasks, in order, and fire what follows. Old news
--   (another attempt, an ended task, `up` of what is no longer starting) changes nothing.
-- Locks: job (ascending), request, task, host, heartbeat. Raises: RZ404, RZ422, RZ410.
create or replace function xce.worker_report(
    p_incarnation bigint,
    p_reports jsonb
)
returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    v_host xce.host := xce.my_host();
    v_now timestamptz;
    v_named record;
    v_out xce.effects := row('{}', '{}', '{}')::xce.effects;
    v_accepted integer := 0;
begin
    if v_host.incarnation <> p_incarnation or v_host.state = 'lost' then
        return '{"stale": true, "accepted": 0, "old_news": 0, "rings": []}';
    end if;
    -- Evidence must not be acknowledged to a database that may not know what it is of.
    if xce.is_paused() then
        raise exception 'the database was restored and waits for an operator' using errcode = 'RZ410';
    end if;
    -- Only jobs that are or were here: a host's login must not be able to lock anybody else's.
    select array_agg(distinct t.job_id) as jobs, array_agg(distinct t.id) as tasks,
           array_agg(distinct t.id) filter (where r.event = 'up') as up, bool_or(r.event = 'gone') as has_gone
      into v_named
      from jsonb_to_recordset(p_reports) as r (job_id bigint, attempt integer, index integer, event text)
     cross join xce.task_of(v_host.id, r.job_id, r.attempt, r.index) t;
    perform from xce.job j where j.id = any (v_named.jobs) order by j.id for no key update;
    perform from xce.resize_request r where r.job_id = any (v_named.jobs) and r.is_open order by r.id for no key update;
    perform from xce.task t where t.id = any (v_named.tasks) order by t.id for no key update;
    v_now := clock_timestamp();
    if v_named.up is not null then
        v_accepted := xce.record_ups(v_named.up, v_now);
    end if;
    if v_named.has_gone then
        v_out := xce.record_ends(v_host.id, p_reports, v_now);
        v_accepted := v_accepted + cardinality(v_out.ended);
    end if;
    if v_accepted > 0 then
        v_out := xce.join_effects(v_out, xce.settle_jobs(v_named.jobs, v_now));
        v_out.rings := xce.free_hosts(v_out, v_now);
    end if;
    perform from xce.heartbeat b
      where b.host_id = v_host.id
        and b.incarnation = p_incarnation
        for share;
    if not found then
        raise exception 'incarnation % of host % is over', p_incarnation, v_host.name using errcode = 'RZ410';
    end if;
    return jsonb_build_object('stale', false, 'accepted', v_accepted,
                              'old_news', jsonb_array_length(p_reports) - v_accepted,
                              'rings', to_jsonb(xce.distinct_rings(v_out.rings)));
end;
$$;

-- Purpose: the task of a host by the numbers that its worker knows it by; none where there is none. Not
--   taken apart by the planner, which would rather read all tasks of the host for every report.
-- Locks: none.
create or replace function xce.task_of(p_host bigint, p_job bigint, p_attempt integer, p_index integer)
returns setof xce.task
language sql
stable
rows 1
as $$
    select t.*
      from xce.task t
     where t.job_id = p_job
       and t.attempt = p_attempt
       and t.index = p_index
       and t.host_id = p_host
    offset 0
$$;

-- Purpose: `up` for those of these tasks that are starting: exec succeeded, and they count as come up.
--   Answers how many moved. Locks: task (held). Raises: RZ422.
create or replace function xce.record_ups(p_ids bigint[], p_now timestamptz)
returns integer
language plpgsql
as $$
declare
    v_ids bigint[] := array(select t.id from xce.task t where t.id = any (p_ids) and t.state = 'starting');
begin
    if v_ids = '{}' then
        return 0;
    end if;
    perform xce.advance_tasks(v_ids, 'up', 'worker', p_now,
                              array_fill('{"outcome": "came_up"}'::jsonb, array[cardinality(v_ids)]));
    return cardinality(v_ids);
end;
$$;

-- Purpose: `gone` for tasks that may have had a process. The first commit decides how: one that was
--   stopping for a shrink is released whatever it exited with (PROTOCOL 12); one that no stop
--   announced raises the generation (PROTOCOL 24).
-- Locks: task (held). Raises: RZ422.
create or replace function xce.record_ends(p_host bigint, p_reports jsonb, p_now timestamptz)
returns xce.effects
language plpgsql
as $$
declare
    v_ids bigint[];
    v_facts jsonb[];
    v_unannounced bigint[];
begin
    select array_agg(x.id order by x.id), array_agg(x.facts order by x.id),
           array_agg(distinct x.job_id) filter (where x.state <> 'stopping')
      into v_ids, v_facts, v_unannounced
      from (select distinct on (t.id) t.id, t.job_id, t.state,
                   jsonb_build_object(
                       'how', case when t.state = 'stopping' and t.stop_cause = 'shrink' then 'released'
                                   when coalesce(r.lost, false) then 'lost'
                                   when not r.execed and t.state = 'stopping' then 'withdrawn'
                                   when not r.execed then 'failed'
                                   when r.signal is not null then 'signalled'
                                   else 'exited' end,
                       'outcome', case when r.execed and r.exit_code = 0 then 'came_up' else 'failed' end,
                       'exit_code', r.exit_code, 'signal', r.signal, 'reason', left(r.reason, 1000),
                       'cpu_used_us', r.cpu_used_us, 'mem_peak_mib', r.mem_peak_mib) as facts
              from jsonb_to_recordset(p_reports) as r (job_id bigint, attempt integer, index integer, event text,
                                                       execed boolean, exit_code integer, signal integer, lost boolean,
                                                       reason text, cpu_used_us bigint, mem_peak_mib bigint)
             cross join xce.task_of(p_host, r.job_id, r.attempt, r.index) t
             where r.event = 'gone'
               and t.state in ('starting', 'running', 'stopping')
             order by t.id) x;
    if v_ids is null then
        return row('{}', '{}', '{}')::xce.effects;
    end if;
    if v_unannounced is not null then
        perform xce.raise_generation(v_unannounced, true);
    end if;
    perform xce.advance_tasks(v_ids, 'gone', 'worker', p_now, v_facts);
    if p_reports @> '[{"lost": true}]' then
        perform xce.note_losses(xce.lost_with_host(p_reports, v_ids, p_now));
    end if;
    return row(v_ids, '{}'::bigint[], array['xce_plan', 'xce_watch'])::xce.effects;
end;
$$;

-- Purpose: of these tasks, those that were lost because their host was: its keeper ended them by the fence,
--   it was started again since they were claimed, or it returned just now without them. Any other loss is
--   an end that nobody saw, on a host that works.
-- Locks: none.
create or replace function xce.lost_with_host(p_reports jsonb, p_ids bigint[], p_now timestamptz)
returns bigint[]
language sql
stable
as $$
    select array_agg(t.id order by t.id)
      from jsonb_to_recordset(p_reports) as r (job_id bigint, attempt integer, index integer, lost boolean, by_fence boolean)
      join xce.task t on t.job_id = r.job_id and t.attempt = r.attempt and t.index = r.index
      join xce.host h on h.id = t.host_id
      left join xce.incarnation c on c.host_id = h.id and c.incarnation = t.incarnation
      left join xce.incarnation n on n.host_id = h.id and n.incarnation = h.incarnation
     where t.id = any (p_ids)
       and t.how = 'lost'
       and r.lost
       and (r.by_fence
            or c.boot_id <> n.boot_id
            or n.started_at > p_now - xce.seconds(xce.setting_value('silent_s'))
               and exists (select from xce.history x
                            where x.lifecycle = 'host' and x.row_id = h.id and x.event = 'returned' and x.at = n.started_at))
$$;
