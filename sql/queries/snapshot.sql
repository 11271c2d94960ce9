-- Everything a tick needs of one moment, as one row: a single statement sees one snapshot, and costs
-- one round trip. Hosts come column by column, because there may be ten thousand; the rest, of which
-- only what asks for something is read, comes as JSON. All ascend by id.
with host as (
    -- Those that may hold something. Schedulable: up, not to be drained, heard of within the silent time.
    select h.id,
           h.name,
           h.cpus,
           h.mem_mib,
           h.gpus,
           h.cpus - h.cpus_used - h.cpus_held as cpus_free,
           h.mem_mib - h.mem_mib_used - h.mem_mib_held as mem_mib_free,
           h.gpus - h.gpus_used - h.gpus_held as gpus_free,
           h.state = 'up' and not h.drain_wanted and coalesce(b.last_seen_at >= s.since, false) as is_schedulable,
           h.state <> 'draining' and not h.drain_wanted as is_in_use,
           nullif(h.labels, '{}') as labels
      from xce.host h
      left join xce.heartbeat b on b.host_id = h.id
     -- Not in place, or the setting is looked up once for each host.
     cross join (select clock_timestamp() - xce.seconds(xce.setting_value('silent_s')) as since offset 0) s
     where h.state in ('joining', 'up', 'draining', 'lost')
     order by h.id
),
job as (
    -- Those with a pending or placed request; one that ended too: a request left behind is the planner's to
    -- cancel. Where a shrink waits also the firm tasks (PROTOCOL 10): they run, on a host that is not lost or
    -- joining, and not of a committed grow that may be rolled back.
    select j.id,
           j.version,
           j.state,
           j.min_tasks,
           j.max_tasks,
           j.cpus,
           j.mem_mib,
           j.gpus,
           coalesce(t.firm, 0) as firm_tasks,
           (select min(r.id) from xce.resize_request r where r.job_id = j.id and r.is_open and r.state = 'committed') as unsettled_id,
           j.span,
           j.existing_hosts,
           j.constraints,
           j.hosts,
           j.exclude_hosts,
           j.priority,
           j.held,
           j.begin_at
      from xce.job j
      left join lateral (
           select count(*) filter (where t.state = 'running' and h.state not in ('lost', 'joining')
                                     and not (r.kind = 'grow' and r.state = 'committed')) as firm
             from xce.task t
             join xce.host h on h.id = t.host_id
             join xce.resize_request r on r.id = t.request_id
            where t.job_id = j.id
              and t.is_open
              and exists (select from xce.resize_request s
                           where s.job_id = j.id and s.is_open and s.kind = 'shrink' and s.state = 'pending')
           ) t on true
     where exists (select from xce.resize_request r
                    where r.job_id = j.id and r.is_open and r.state in ('pending', 'placed'))
),
task as (
    -- Hosts of the open tasks of those jobs, a host once for each task: of members, and of those that are
    -- stopping. Counting is left to the reader: sorting 100,000 tasks by host costs more than sending them.
    select t.job_id as id,
           array_agg(t.host_id) filter (where t.is_member) as members,
           array_agg(t.host_id) filter (where not t.is_member) as leaving
      from xce.task t
     where t.is_open
       and t.job_id in (select r.job_id from xce.resize_request r where r.is_open and r.state in ('pending', 'placed'))
     group by t.job_id
),
request as (
    -- Starts and grows that are pending or placed, with their holds; ids ascend in the order of asking.
    select r.id,
           r.version,
           r.job_id,
           r.kind,
           r.state,
           r.tasks_min,
           r.tasks_max,
           r.hosts,
           r.exclude_hosts,
           r.existing_hosts,
           r.reason,
           r.deadline_at,
           array(select array[d.host_id, d.tasks] from xce.hold d where d.request_id = r.id order by d.host_id) as holds
      from xce.resize_request r
     where r.is_open
       and r.kind <> 'shrink'
       and r.state in ('pending', 'placed')
),
shrink as (
    -- Pending shrinks with the members they name: for each host assigned ones and others, and of all of them
    -- how many run and how many count among the job's firm tasks.
    select r.id,
           r.version,
           r.job_id,
           coalesce(n.named_on, '[]') as named_on,
           coalesce(n.running, 0) as named_running,
           coalesce(n.firm, 0) as named_firm,
           r.reason,
           r.deadline_at
      from xce.resize_request r
      left join lateral (
           select json_agg(json_build_array(x.host_id, x.assigned, x.started) order by x.host_id) as named_on,
                  sum(x.running)::bigint as running,
                  sum(x.firm)::bigint as firm
             from (select t.host_id,
                          count(*) filter (where t.state = 'assigned') as assigned,
                          count(*) filter (where t.state <> 'assigned') as started,
                          count(*) filter (where t.state = 'running') as running,
                          count(*) filter (where t.state = 'running' and h.state not in ('lost', 'joining')
                                             and not (g.kind = 'grow' and g.state = 'committed')) as firm
                     from xce.task t
                     join xce.host h on h.id = t.host_id
                     join xce.resize_request g on g.id = t.request_id
                    where t.shrink_id = r.id
                      and t.is_open
                      and t.is_member
                    group by t.host_id) x
           ) n on true
     where r.is_open
       and r.kind = 'shrink'
       and r.state = 'pending'
)
select pg_current_snapshot()::text as taken,
       clock_timestamp() as at,
       h.columns,
       (select coalesce(json_agg(j order by j.id), '[]')::text from job j) as jobs,
       (select coalesce(json_agg(t), '[]')::text from task t) as tasks,
       (select coalesce(json_agg(r order by r.id), '[]')::text from request r) as requests,
       (select coalesce(json_agg(s order by s.id), '[]')::text from shrink s) as shrinks
  from (select row(array_agg(h.id), array_agg(h.name), array_agg(h.cpus), array_agg(h.mem_mib), array_agg(h.gpus),
                   array_agg(h.cpus_free), array_agg(h.mem_mib_free), array_agg(h.gpus_free),
                   array_agg(h.is_schedulable), array_agg(h.is_in_use), array_agg(h.labels)) as columns
          from host h) h
