-- Purpose: requests whose own deadline passed are cancelled; committed ones whose start deadline
--   passed are decided: with the minimum up the undecided tasks are taken back, else they fail
--   (PROTOCOL 6, 18). Jobs that ran for their run limit stop.
-- Locks: fence, job, request, task, host, each ascending. Raises: RZ410, RZ422.
create or replace function xce.sweep_deadlines(p_epoch bigint, p_now timestamptz default null)
returns text[]
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_jobs bigint[];
    v_out xce.effects;
begin
    perform xce.pass_fence(p_epoch);
    v_jobs := array(select r.job_id
                      from xce.resize_request r
                     where r.is_open
                       and ((r.state in ('pending', 'placed') and r.deadline_at <= v_now)
                            or (r.state = 'committed' and r.start_deadline_at <= v_now))
                     union
                    select o.id from xce.over_run_limit(v_now) o);
    if cardinality(v_jobs) = 0 then
        return '{}';
    end if;
    perform from xce.job j where j.id = any (v_jobs) order by j.id for no key update;
    perform from xce.resize_request r where r.job_id = any (v_jobs) and r.is_open order by r.id for no key update;
    v_now := coalesce(p_now, clock_timestamp());
    v_out := xce.drop_requests(array(select r.id
                                       from xce.resize_request r
                                      where r.job_id = any (v_jobs)
                                        and r.state in ('pending', 'placed')
                                        and r.deadline_at <= v_now
                                      order by r.id), 'deadline', 'controller', v_now, p_epoch);
    v_out := xce.join_effects(v_out, xce.pass_start_deadline(v_jobs, v_now, p_epoch));
    v_out := xce.join_effects(v_out, xce.pass_run_limits(v_jobs, v_now));
    v_out := xce.join_effects(v_out, xce.settle_jobs(v_jobs, v_now));
    return xce.free_hosts(v_out, v_now);
end;
$$;

-- Purpose: take back what is undecided in committed requests whose start deadline passed; what came up
--   then decides them (settle_jobs). Where the minimum is out of reach they fail with that reason, but a
--   start that waits for what a lost host has only fails by the loss, which is no failure (PROTOCOL 6, 23).
-- Locks: task. Raises: RZ422.
create or replace function xce.pass_start_deadline(p_jobs bigint[], p_now timestamptz, p_epoch bigint)
returns xce.effects
language plpgsql
as $$
declare
    v_out xce.effects := row('{}', '{}', '{}')::xce.effects;
    v_request record;
    v_undecided bigint[];
begin
    for v_request in
        select p.*
          from xce.progress(p_jobs) p
          join xce.resize_request r on r.id = p.id
         where r.start_deadline_at <= p_now
           and p.undecided > 0
           and not xce.waits_for_loss(p.id, p.need - p.came_up)
         order by p.id
    loop
        v_undecided := array(select t.id from xce.task t
                              where t.request_id = v_request.id and t.outcome is null and t.is_member order by t.id);
        -- None are left where the start before it in this list has failed and stopped the job.
        if cardinality(v_undecided) = 0 then
            continue;
        end if;
        if v_request.came_up >= v_request.need then
            -- A start's tasks are in the job's view since its commit (PROTOCOL 24).
            perform xce.raise_generation(array[v_request.job_id], v_request.kind = 'start');
            v_out := xce.join_effects(v_out, xce.take_back_tasks(
                v_undecided, 'controller', 'rollback', p_now, p_reason => 'start deadline', p_epoch => p_epoch));
        else
            v_out := xce.join_effects(v_out, xce.fail_request(
                v_request.id, format('start deadline: %s of at least %s came up', v_request.came_up, v_request.need), p_now));
        end if;
    end loop;
    return v_out;
end;
$$;

-- Purpose: whether a start lacks what only tasks on lost hosts, or on hosts that are just returning, can
--   still bring. Locks: none.
create or replace function xce.waits_for_loss(p_id bigint, p_lacking bigint)
returns boolean
language sql
stable
as $$
    select p_lacking > 0 and count(*) >= p_lacking
      from xce.task t
      join xce.resize_request r on r.id = t.request_id and r.kind = 'start'
      join xce.host h on h.id = t.host_id and h.state in ('lost', 'joining')
     where t.request_id = p_id
       and t.outcome is null
$$;

-- Purpose: running jobs whose current attempt has run for its limit, counted from when its start
--   was `running`. Locks: none.
create or replace function xce.over_run_limit(p_now timestamptz)
returns table (id bigint)
language sql
stable
as $$
    select j.id
      from xce.job j
      join xce.resize_request r on r.job_id = j.id and r.attempt = j.attempt and r.kind = 'start'
     where j.is_open
       and j.state = 'running'
       and r.state = 'running'
       and r.finished_at + xce.seconds(j.run_limit_s) <= p_now
$$;

-- Purpose: stop the jobs among these that have run for their limit. Locks: request, task.
-- Raises: RZ422.
create or replace function xce.pass_run_limits(p_jobs bigint[], p_now timestamptz)
returns xce.effects
language plpgsql
as $$
declare
    v_out xce.effects := row('{}', '{}', '{}')::xce.effects;
    v_job bigint;
begin
    for v_job in select o.id from xce.over_run_limit(p_now) o where o.id = any (p_jobs) order by o.id
    loop
        v_out := xce.join_effects(v_out, xce.stop_job(v_job, 'stop', 'controller', 'run_limit', 'run_limit', p_now));
    end loop;
    return v_out;
end;
$$;
