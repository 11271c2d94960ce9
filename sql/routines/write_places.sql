-- Purpose: write accepted placements: requests become placed, and those to commit at once committed.
--   Their room is booked on the hosts, as used or as held.
-- Locks: host (held). Raises: RZ422.
create or replace function xce.write_places(p_places xce.placement[], p_epoch bigint, p_now timestamptz)
returns xce.effects
language plpgsql
as $$
declare
    v_placed bigint[] := array(select distinct p.request_id from unnest(p_places) as p order by 1);
    v_now_committed xce.placement[] := array(select p from unnest(p_places) as p where p.is_commit order by p.ordinal, p.place);
begin
    if cardinality(v_placed) = 0 then
        return row('{}', '{}', '{}')::xce.effects;
    end if;
    perform xce.advance_requests(v_placed, 'place', 'controller', p_now, null, p_epoch);
    if cardinality(v_now_committed) < cardinality(p_places) then
        insert into xce.hold (request_id, host_id, tasks)
        select p.request_id, p.host_id, sum(p.tasks)
          from unnest(p_places) as p
         where not p.is_commit
         group by p.request_id, p.host_id;
    end if;
    update xce.host h
       set cpus_used = h.cpus_used + x.cpus_used,
           mem_mib_used = h.mem_mib_used + x.mem_mib_used,
           gpus_used = h.gpus_used + x.gpus_used,
           cpus_held = h.cpus_held + x.cpus - x.cpus_used,
           mem_mib_held = h.mem_mib_held + x.mem_mib - x.mem_mib_used,
           gpus_held = h.gpus_held + x.gpus - x.gpus_used,
           changed = pg_current_xact_id()
      from (select p.host_id, sum(p.tasks * j.cpus) as cpus, sum(p.tasks * j.mem_mib) as mem_mib,
                   sum(p.tasks * j.gpus) as gpus,
                   coalesce(sum(p.tasks * j.cpus) filter (where p.is_commit), 0) as cpus_used,
                   coalesce(sum(p.tasks * j.mem_mib) filter (where p.is_commit), 0) as mem_mib_used,
                   coalesce(sum(p.tasks * j.gpus) filter (where p.is_commit), 0) as gpus_used
              from unnest(p_places) as p
              join xce.job j on j.id = p.job_id
             group by p.host_id) x
     where h.id = x.host_id;
    if cardinality(v_now_committed) = 0 then
        return row('{}', '{}', '{}')::xce.effects;
    end if;
    return xce.commit_places(v_now_committed, p_epoch, p_now);
end;
$$;

-- Purpose: commit requests that were placed earlier: their holds become use of the same hosts. A hold
--   on a host that is no longer fit is for the planner to unplace.
-- Locks: host (held). Raises: RZ422.
create or replace function xce.commit_held(p_ids bigint[], p_epoch bigint, p_now timestamptz)
returns xce.effects
language plpgsql
as $$
declare
    v_places xce.placement[];
begin
    select array_agg(row(0, h.request_id, r.job_id, h.host_id, h.tasks, h.host_id, true)::xce.placement
                     order by h.request_id, h.host_id)
      into v_places
      from xce.hold h
      join xce.resize_request r on r.id = h.request_id
     where h.request_id = any (p_ids);
    update xce.host h
       set cpus_used = h.cpus_used + x.cpus, cpus_held = h.cpus_held - x.cpus,
           mem_mib_used = h.mem_mib_used + x.mem_mib, mem_mib_held = h.mem_mib_held - x.mem_mib,
           gpus_used = h.gpus_used + x.gpus, gpus_held = h.gpus_held - x.gpus,
           changed = pg_current_xact_id()
      from (select p.host_id, sum(p.tasks * j.cpus) as cpus, sum(p.tasks * j.mem_mib) as mem_mib,
                   sum(p.tasks * j.gpus) as gpus
              from unnest(v_places) as p
              join xce.job j on j.id = p.job_id
             group by p.host_id) x
     where h.id = x.host_id;
    delete from xce.hold h where h.request_id = any (p_ids);
    return xce.commit_places(v_places, p_epoch, p_now);
end;
$$;

-- Purpose: placed requests become committed: their tasks are made in the order of the placement, with
--   the job's next indices, and their allocation ranges begin. Generation rises; for a start the job
--   runs, and its own view changes too (PROTOCOL 24).
-- Locks: task (new). Raises: RZ422.
create or replace function xce.commit_places(p_places xce.placement[], p_epoch bigint, p_now timestamptz)
returns xce.effects
language plpgsql
as $$
declare
    v_requests bigint[] := array(select distinct p.request_id from unnest(p_places) as p order by 1);
    v_starting bigint[];
    v_job bigint;
begin
    v_starting := array(select r.job_id from xce.resize_request r
                         where r.id = any (v_requests) and r.kind = 'start' order by r.job_id);
    -- One update a job: a row that its own transaction wrote before has all its foreign keys looked up again.
    update xce.job j
       set generation = j.generation + 1,
           revision = j.revision + case when j.id = any (v_starting) then 1 else 0 end,
           version = j.version + 1,
           next_index = j.next_index + x.tasks,
           changed = pg_current_xact_id()
      from (select p.job_id, sum(p.tasks) as tasks from unnest(p_places) as p group by p.job_id) x
     where j.id = x.job_id;
    foreach v_job in array v_starting
    loop
        perform xce.advance_job(v_job, 'start', 'controller', p_now, null, p_epoch);
    end loop;
    perform xce.insert_tasks(p_places, p_epoch, p_now);
    perform xce.advance_requests(v_requests, 'commit', 'controller', p_now, null, p_epoch);
    return row('{}'::bigint[], '{}'::bigint[],
               array(select distinct 'xce_host_' || p.host_id from unnest(p_places) as p) || array['xce_watch'])::xce.effects;
end;
$$;

-- Purpose: the tasks of committed placements, with their history and allocation ranges. Their indices
--   are the last that their jobs have given out.
-- Locks: task (new). Raises: unique_violation when an index would live twice (R3).
create or replace function xce.insert_tasks(p_places xce.placement[], p_epoch bigint, p_now timestamptz)
returns void
language plpgsql
as $$
begin
    with numbered as (
        select p.request_id, p.job_id, p.host_id,
               row_number() over (partition by p.job_id order by p.request_id desc, p.place desc, n desc) as nth_last
          from unnest(p_places) as p
         cross join generate_series(1, p.tasks) as n
    ),
    made as (
        insert into xce.task (job_id, attempt, index, host_id, request_id, state, cpus, mem_mib, gpus, assigned_at)
        select n.job_id, j.attempt, j.next_index - n.nth_last, n.host_id, n.request_id, 'assigned',
               j.cpus, j.mem_mib, j.gpus, p_now
          from numbered n
          join xce.job j on j.id = n.job_id
         order by n.job_id, n.nth_last desc
        returning id, job_id, attempt, index, host_id, request_id, cpus, mem_mib, gpus
    ),
    ranged as (
        insert into xce.allocation (task_id, job_id, attempt, task_index, host_id, cpus, mem_mib, gpus, during)
        select m.id, m.job_id, m.attempt, m.index, m.host_id, m.cpus, m.mem_mib, m.gpus, tstzrange(p_now, null)
          from made m
    )
    insert into xce.history (lifecycle, row_id, version, at, job_id, attempt, source, event, target,
                             actor, detail, generation, epoch, era)
    select 'task', m.id, 1, p_now, m.job_id, m.attempt, 'none', 'assign', 'assigned', 'controller',
           jsonb_build_object('index', m.index, 'host_id', m.host_id, 'request_id', m.request_id),
           j.generation, p_epoch, (select f.era from xce.fence f)
      from made m
      join xce.job j on j.id = m.job_id;
end;
$$;
