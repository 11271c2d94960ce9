-- Purpose: claim, heartbeat and desired state in one transaction. Every assigned task of the host is
--   claimed (`starting`) before its worker forks; the answer says what should run there. A heartbeat
--   that is hardly older than the last one is left out, and the answer says so: the keeper may count
--   its fence only from an exchange that the controller counts from too (PROTOCOL 26). p_fence_s is the
--   fence that the keeper is known to count with; without it the longest that it was ever given stands.
--   Where not p_is_full the worker remembers what it was told of each task since it registered: then those
--   that run are told by their ids alone, which is most of a busy host's.
--   After a restore the answer says `is_paused`: then nothing is claimed, and nothing to be changed there.
-- Locks: task (skipping those being withdrawn), host (joining only), heartbeat last.
-- Raises: RZ404, RZ422; RZ410 when the incarnation ended while this ran (a sweep came between) and
--   something was done that must be undone.
create or replace function xce.worker_fetch(
    p_incarnation bigint,
    p_is_clear boolean,
    p_fence_s numeric default null,
    p_is_full boolean default true
)
returns json
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    v_host xce.host := xce.my_host();
    v_now timestamptz;
    v_setting jsonb := (select jsonb_object_agg(s.name, s.value) from xce.setting s);
    v_fence_s numeric := (v_setting ->> 'fence_s')::numeric;
    v_open record;
    v_claimed bigint[] := '{}';
    v_rings text[] := '{}';
    v_is_heartbeat boolean;
    v_is_paused boolean;
begin
    if v_host.incarnation <> p_incarnation or v_host.state = 'lost' then
        return '{"stale": true}';
    end if;
    v_is_paused := xce.is_paused();
    -- Read once, because a host may have thousands that run and only run.
    select array_agg(t.id) filter (where t.state = 'assigned') as assigned,
           array_agg(t.id) filter (where t.state <> 'assigned' and (p_is_full or t.state <> 'running')) as told,
           array_agg(t.id) filter (where t.state = 'running' and not p_is_full) as running
      into v_open
      from xce.task t
     where t.host_id = v_host.id
       and t.is_open;
    if v_host.state in ('up', 'draining') and not v_is_paused and v_open.assigned is not null then
        v_claimed := array(select t.id from xce.task t
                            where t.id = any (v_open.assigned) and t.state = 'assigned'
                            order by t.id for no key update skip locked);
    end if;
    -- After the claim's locks: a claim must not be older in history than what it claims.
    v_now := clock_timestamp();
    if v_host.state = 'joining' and p_is_clear and not v_is_paused then
        v_rings := xce.clear_host(v_host.id, v_now);
    end if;
    if cardinality(v_claimed) > 0 then
        perform xce.advance_tasks(v_claimed, 'start', 'worker', v_now,
                                  array_fill(jsonb_build_object('incarnation', p_incarnation),
                                             array[cardinality(v_claimed)]));
    end if;
    -- A last one in the future means that the clock was set back: until it is past, every exchange
    -- counts, or the keeper's fence would run out meanwhile.
    v_is_heartbeat := cardinality(v_claimed) > 0 or not exists (
        select from xce.heartbeat b
         where b.host_id = v_host.id
           and b.incarnation = p_incarnation
           and b.last_seen_at > v_now - xce.seconds((v_setting ->> 'heartbeat_s')::numeric / 5)
           and b.last_seen_at <= v_now
    );
    if v_is_heartbeat then
        update xce.heartbeat b
           set last_seen_at = greatest(b.last_seen_at, v_now)
         where b.host_id = v_host.id
           and b.incarnation = p_incarnation;
        if not found and v_claimed = '{}' and v_rings = '{}' then
            -- It was lost and vouched for since: nothing was done that would have to be undone.
            return '{"stale": true}';
        elsif not found then
            raise exception 'incarnation % of host % is over', p_incarnation, v_host.name using errcode = 'RZ410';
        end if;
    end if;
    update xce.incarnation i
       set fence_s_max = greatest(v_fence_s, coalesce(p_fence_s, i.fence_s_max))
     where i.host_id = v_host.id
       and i.incarnation = p_incarnation
       and i.fence_s_max <> greatest(v_fence_s, coalesce(p_fence_s, i.fence_s_max));
    return json_build_object('stale', false, 'is_heartbeat', v_is_heartbeat, 'fence_s', v_fence_s,
                             'heartbeat_s', v_setting -> 'heartbeat_s',
                             'poll_s', v_setting -> 'worker_poll_s',
                             'output_keep_days', v_setting -> 'output_keep_days',
                             'output_max_mib', v_setting -> 'output_max_mib',
                             'output_keep_mib', v_setting -> 'output_keep_mib',
                             'is_paused', v_is_paused, 'rings', v_rings,
                             'tasks', case when v_is_paused then '[]'
                                           else xce.desired_tasks(v_host, v_claimed || v_open.told) end,
                             'running', case when v_is_paused or v_open.running is null then '[]'
                                             else array_to_json(v_open.running) end);
end;
$$;

-- Purpose: joining -> up, for a worker that has reconciled; a drain wish takes effect at once.
-- Locks: host. Raises: RZ422.
create or replace function xce.clear_host(p_host bigint, p_now timestamptz)
returns text[]
language plpgsql
as $$
declare
    v_state text;
begin
    select h.state into v_state from xce.host h where h.id = p_host for no key update;
    if v_state <> 'joining' then
        return '{}';
    end if;
    perform xce.advance_host(p_host, 'cleared', 'controller', p_now);
    perform xce.settle_host(p_host, p_now);
    return array['xce_plan', 'xce_watch', 'xce_host_' || p_host];
end;
$$;

-- Purpose: what should have a process on a host, of these tasks, and how to launch what is starting. A task
--   that is assigned yet is not part of it: nobody has claimed it. Where its output goes is told of all, because a
--   worker that was started again knows it of none. Text rather than jsonb, which costs five times as much
--   to build: a host's tasks are told at each of its exchanges.
-- Locks: none.
create or replace function xce.desired_tasks(p_host xce.host, p_tasks bigint[])
returns json
language sql
stable
as $$
    select coalesce(json_agg(d order by d.task_id), '[]')
      from (select t.id as task_id, t.job_id, t.attempt, t.index, t.state,
                   coalesce(t.stop_grace_s, j.grace_s) as grace_s, j.fence, l.stdout, l.stderr,
                   case when t.state = 'starting' then json_build_object(
                       'command', case when t.index = 0 then coalesce(l.head_command, l.command) else l.command end,
                       'env', l.env, 'cwd', l.cwd, 'stdout', l.stdout, 'stderr', l.stderr, 'cpus', t.cpus,
                       'mem_mib', t.mem_mib, 'gpus', t.gpus, 'os_user', u.os_user, 'owner', u.name,
                       'host', p_host.name) end as launch
              from xce.task t
              join xce.job j on j.id = t.job_id
              join xce.job_launch l on l.job_id = j.id
              join xce.user_account u on u.id = j.owner_id
             where t.id = any (p_tasks)
               and t.is_open
               and t.state <> 'assigned') d
$$;
