-- Purpose: the decisions of a plan that give room: place (with commit at once where nobody has to
--   agree) and commit. All are judged together: bounds as a running sum per job, capacity as a
--   running sum per host, in the order of the plan. Answers the refused ones as {ordinal: code}.
-- Locks: host (ascending); the caller holds fence, jobs and requests. Raises: RZ422.
create or replace function xce.apply_places(
    p_decisions jsonb,
    p_effects xce.effects,
    p_epoch bigint,
    p_now timestamptz
)
returns table (refused jsonb, effects xce.effects)
language plpgsql
as $$
declare
    v_places xce.placement[];
    v_committed bigint[];
    v_at timestamptz;
begin
    refused := '{}';
    effects := p_effects;
    v_places := xce.read_placements(p_decisions);
    -- Hosts are locked once, in order, and before anything is judged by them: a hold's host may be
    -- drained or lost by whoever has it just now. What was given back is free before it is given out.
    perform from xce.host h
      where h.id in (select p.host_id from unnest(v_places) as p
                     union select t.host_id from xce.task t where t.id = any ((effects).ended)
                     union select d.host_id from xce.hold d where d.request_id = any ((effects).unheld)
                     union select d.host_id from xce.hold d
                             join jsonb_array_elements(p_decisions) as x on d.request_id = (x ->> 'request_id')::bigint
                            where x ->> 'do' = 'commit')
      order by h.id for no key update;
    if (effects).ended <> '{}' or (effects).unheld <> '{}' then
        effects := row('{}'::bigint[], '{}'::bigint[], xce.free_hosts(effects, p_now))::xce.effects;
    end if;
    select coalesce(jsonb_object_agg(j.ordinal::text, j.code), '{}') into refused
      from xce.judge_requests(p_decisions, p_now) j
     where j.code is not null;
    v_places := xce.without_refused(v_places, refused);
    if cardinality(v_places) > 0 then
        refused := refused || (select coalesce(jsonb_object_agg(j.ordinal::text, j.code), '{}')
                                 from xce.judge_hosts(v_places, p_now) j);
        v_places := xce.without_refused(v_places, refused);
        refused := refused || xce.judge_order(v_places);
        v_places := xce.without_refused(v_places, refused);
        v_at := greatest(p_now, xce.last_ranges_end(array(select p.job_id from unnest(v_places) as p)));
        effects := xce.join_effects(effects, xce.write_places(v_places, p_epoch, v_at));
    end if;
    v_committed := array(select (d.value ->> 'request_id')::bigint
                           from jsonb_array_elements(p_decisions) with ordinality as d
                          where d.value ->> 'do' = 'commit'
                            and not refused ? (d.ordinality - 1)::text);
    if cardinality(v_committed) > 0 then
        v_at := greatest(p_now, xce.last_ranges_end(array(select r.job_id from xce.resize_request r where r.id = any (v_committed))));
        effects := xce.join_effects(effects, xce.commit_held(v_committed, p_epoch, v_at));
    end if;
    return next;
end;
$$;

-- Purpose: the placements of the decisions that are not refused; most often these are all. Locks: none.
create or replace function xce.without_refused(p_places xce.placement[], p_refused jsonb)
returns xce.placement[]
language plpgsql
immutable
as $$
begin
    if p_refused = '{}' then
        return p_places;
    end if;
    return array(select p from unnest(p_places) as p where not p_refused ? (p.ordinal)::text);
end;
$$;

-- Purpose: when the last ranges of an earlier attempt of these jobs end, where they start anew: after
--   a clock was set back that lies ahead, and a new range must not overlap one. Null where there are none.
-- Locks: none.
create or replace function xce.last_ranges_end(p_jobs bigint[])
returns timestamptz
language sql
stable
as $$
    select max(upper(a.during))
      from xce.job j
      join xce.allocation a on a.job_id = j.id
     where j.id = any (p_jobs)
       and j.state = 'pending'
       and j.attempt > 1
$$;

-- Purpose: the place decisions as one row for each host of each decision. Locks: none.
create or replace function xce.read_placements(p_decisions jsonb)
returns xce.placement[]
language sql
stable
as $$
    select coalesce(array_agg(row((d.ordinality - 1)::integer, (d.value ->> 'request_id')::bigint, r.job_id,
                                  (h.value ->> 0)::bigint, (h.value ->> 1)::integer, h.ordinality,
                                  coalesce((d.value ->> 'commit')::boolean, false))::xce.placement
                              order by d.ordinality, h.ordinality), '{}')
      from jsonb_array_elements(p_decisions) with ordinality as d
      join xce.resize_request r on r.id = (d.value ->> 'request_id')::bigint
     cross join jsonb_array_elements(case when d.value ->> 'do' = 'place' then d.value -> 'hosts' else '[]' end)
                with ordinality as h
     where d.value ->> 'do' = 'place'
$$;

-- Purpose: what refuses a place or commit for the request's and the job's sake (PROTOCOL 14, 18); code
--   is null where nothing does. Locks: none.
create or replace function xce.judge_requests(p_decisions jsonb, p_now timestamptz)
returns table (ordinal integer, code text)
language sql
stable
as $$
    with asked as (
        select (d.ordinality - 1)::integer as ordinal, d.value ->> 'do' as "do", r.*,
               (d.value ->> 'request_version')::bigint as believed,
               (d.value ->> 'job_version')::bigint as job_believed,
               s.tasks,
               sum(s.tasks) over (partition by r.job_id order by d.ordinality) as running_sum
          from jsonb_array_elements(p_decisions) with ordinality as d
          join xce.resize_request r on r.id = (d.value ->> 'request_id')::bigint
         cross join lateral (
               select coalesce(sum((h ->> 1)::integer), 0) as tasks
                 from jsonb_array_elements(case when d.value ->> 'do' = 'place' then d.value -> 'hosts' else '[]' end) as h
               ) s
         where d.value ->> 'do' in ('place', 'commit')
    )
    select a.ordinal,
           case when a.version <> a.believed or j.version <> coalesce(a.job_believed, j.version) then 'version'
                when a.state <> case a."do" when 'place' then 'pending' else 'placed' end or a.kind = 'shrink'
                     or a.attempt <> j.attempt
                     or j.state <> case a.kind when 'start' then 'pending' else 'running' end then 'state'
                when j.held then 'held'
                when a.deadline_at <= p_now then 'deadline'
                when a."do" = 'place' and (a.tasks < a.tasks_min or a.tasks > a.tasks_max or a.tasks < 1) then 'bounds'
                when a."do" = 'place' and xce.claimed_tasks(j.id) + a.running_sum > j.max_tasks then 'bounds'
                when a."do" = 'commit' and exists (select from xce.hold d
                                                     join xce.host h on h.id = d.host_id
                                                    where d.request_id = a.id and not xce.may_take(h, p_now))
                then 'host'
                when a.kind = 'grow' and not exists (select from xce.task t where t.job_id = j.id and t.is_open and t.is_member)
                then 'bounds' end
      from asked a
      join xce.job j on j.id = a.job_id
$$;

-- Purpose: whether a host may be given something new: up, not to be drained, heard of lately.
-- Locks: none; the caller holds the host.
create or replace function xce.may_take(p_host xce.host, p_now timestamptz)
returns boolean
language sql
stable
as $$
    select (p_host).state = 'up' and not (p_host).drain_wanted
       and exists (select from xce.heartbeat b
                    where b.host_id = (p_host).id
                      and b.last_seen_at >= p_now - xce.seconds((select s.value from xce.setting s where s.name = 'silent_s')))
$$;

-- Purpose: PROTOCOL 17: a grow does not pass an older one of its job that still waits, be it that the
--   older one was refused just now. Answers the refused ones as {ordinal: code}. Locks: none.
create or replace function xce.judge_order(p_places xce.placement[])
returns jsonb
language sql
stable
as $$
    select coalesce(jsonb_object_agg(p.ordinal::text, 'order'), '{}')
      from unnest(p_places) as p
     where exists (select from xce.resize_request r
                    where r.job_id = p.job_id
                      and r.is_open
                      and r.kind = 'grow'
                      and r.state = 'pending'
                      and r.id < p.request_id
                      and r.id not in (select o.request_id from unnest(p_places) as o))
$$;

-- Purpose: tasks that may have a process, plus holds: what the maximum is held against (R2).
-- Locks: none.
create or replace function xce.claimed_tasks(p_job bigint)
returns bigint
language sql
stable
as $$
    select (select count(*) from xce.task t where t.job_id = p_job and t.is_open)
         + (select coalesce(sum(h.tasks), 0)
              from xce.hold h
              join xce.resize_request r on r.id = h.request_id
             where r.job_id = p_job and r.state = 'placed')
$$;

-- Purpose: what refuses a placement for a host's sake: not up, drain wanted, not seen lately, or full
--   once the decisions before it in the plan have their room. One code for each decision.
-- Locks: none; the caller holds the hosts.
create or replace function xce.judge_hosts(p_places xce.placement[], p_now timestamptz)
returns table (ordinal integer, code text)
language sql
stable
as $$
    select x.ordinal, min(x.code)
      from (select p.ordinal,
                   case when not xce.may_take(h, p_now) then 'host'
                        when h.cpus_used + h.cpus_held + sum(p.tasks * j.cpus) over w > h.cpus
                          or h.mem_mib_used + h.mem_mib_held + sum(p.tasks * j.mem_mib) over w > h.mem_mib
                          or h.gpus_used + h.gpus_held + sum(p.tasks * j.gpus) over w > h.gpus then 'capacity'
                   end as code
              from unnest(p_places) as p
              join xce.job j on j.id = p.job_id
              join xce.host h on h.id = p.host_id
            window w as (partition by p.host_id order by p.ordinal)) x
     where x.code is not null
     group by x.ordinal
$$;
