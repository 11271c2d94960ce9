-- Purpose: end the tasks of lost hosts whose fence and whose job's `loss_grace_s` are over, and let
--   `on_host_loss` act on their jobs. Judged again under the locks: a host that returned meanwhile keeps its
--   tasks. Job by job, so that one that cannot be settled holds up no other. Nothing is judged where this
--   clock is more than 2 s away from p_expected (PROTOCOL 32).
-- Locks: fence, job, request, task, host, heartbeat, each ascending. Raises: RZ410.
create or replace function xce.sweep_losses(
    p_epoch bigint,
    p_now timestamptz default null,
    p_expected timestamptz default null
)
returns table (rings text[], at timestamptz, verdict text, tasks bigint)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_hosts bigint[];
    v_jobs bigint[];
    v_job bigint;
    v_ids bigint[];
    v_out xce.effects := row('{}', '{}', '{}')::xce.effects;
begin
    perform xce.pass_fence(p_epoch);
    at := coalesce(p_now, clock_timestamp());
    rings := '{}';
    tasks := 0;
    verdict := case when xce.is_far(at, p_expected) then 'jumped' else 'judged' end;
    select array_agg(distinct w.host_id), array_agg(distinct w.job_id)
      into v_hosts, v_jobs
      from xce.waiting_tasks() w
     where w.due_at <= at;
    if verdict <> 'judged' or v_hosts is null then
        return next;
        return;
    end if;
    perform xce.lock_silent(v_hosts, v_jobs);
    at := coalesce(p_now, clock_timestamp());
    for v_job, v_ids in
        select w.job_id, array_agg(w.id order by w.id)
          from xce.waiting_tasks() w
         where w.due_at <= at
           and w.job_id = any (v_jobs)
           and w.host_id = any (v_hosts)
         group by w.job_id
         order by w.job_id
    loop
        begin
            v_out := xce.join_effects(v_out, xce.join_effects(xce.lose_tasks(v_ids, 'fence', at, p_epoch),
                                                              xce.settle_jobs(array[v_job], at)));
            tasks := tasks + cardinality(v_ids);
        exception
            when sqlstate 'RZ422' or integrity_constraint_violation then
                raise warning 'the loss of tasks of job % is not settled: %', v_job, sqlerrm;
        end;
    end loop;
    rings := xce.free_hosts(v_out, at);
    return next;
end;
$$;

-- Purpose: tasks on lost hosts that may have a process, and when they are given up (PROTOCOL 23, 26, 27):
--   when their keeper has ended them by the longest fence that it was given, counted from the last
--   accepted heartbeat, with the grace of their stop and 5 s; and not before the job's `loss_grace_s`, where
--   the job waits for nothing else. Never where only evidence counts: with `fence: keep`, and on a host whose
--   incarnation is not known, as after a restore.
-- Locks: none.
create or replace function xce.waiting_tasks()
returns table (id bigint, job_id bigint, host_id bigint, due_at timestamptz)
language sql
stable
as $$
    select t.id, t.job_id, t.host_id,
           case when j.fence = 'keep' then 'infinity'
                else f.since + xce.seconds(greatest(
                    i.fence_s_max + greatest(j.grace_s, t.stop_grace_s) + 5,
                    case when j.state = 'running' and xce.loss_matters(t, r.kind) then j.loss_grace_s end)) end
      from xce.host h
      join xce.heartbeat b on b.host_id = h.id
      join xce.incarnation i on i.host_id = h.id and i.incarnation = h.incarnation
      join xce.task t on t.host_id = h.id and t.is_open
      join xce.resize_request r on r.id = t.request_id
      join xce.job j on j.id = t.job_id
     cross join lateral (
           select greatest(b.last_seen_at, (select c.at from xce.clock_jump c order by c.id desc limit 1)) as since
           ) f
     where h.state = 'lost'
       and t.state in ('starting', 'running', 'stopping')
$$;

-- Purpose: what a task that waits for its lost host says (PROTOCOL 27). Locks: none.
create or replace function xce.waits_for_host(p_hosts text, p_fence text)
returns text
language sql
immutable
as $$
    select format(case p_fence when 'keep' then 'host_lost: waits for %s to return, or an operator (fence: keep)'
                               else 'host_lost: waits for the fence of %s' end, p_hosts)
     where p_hosts is not null
$$;
