-- Purpose: stop a running job whose end its own tasks decided (PROTOCOL 20): the head ended where
--   that ends it, a task failed where that ends it, or no member is left and nothing is committed.
-- Locks: request, task; the caller holds the jobs' locks. Raises: RZ422.
create or replace function xce.settle_running_jobs(p_jobs bigint[], p_now timestamptz)
returns xce.effects
language plpgsql
as $$
declare
    v_out xce.effects := row('{}', '{}', '{}')::xce.effects;
    v_job record;
begin
    for v_job in
        select x.id, x.cause
          from (select j.id,
                       case when j.ends_when = 'head' and xce.head_has_ended(j.id, j.attempt) then 'head_ended'
                            when j.on_task_failure = 'end_job' and xce.failed_index(j.id, j.attempt) is not null
                            then 'task_failed'
                            when not exists (select from xce.task t where t.job_id = j.id and t.is_open and t.is_member)
                             and not exists (select from xce.resize_request r
                                              where r.job_id = j.id and r.state = 'committed')
                            then 'no_member_left' end as cause
                  from xce.job j
                 where j.id = any (p_jobs)
                   and j.state = 'running') x
         where x.cause is not null
         order by x.id
    loop
        v_out := xce.join_effects(v_out, xce.stop_job(v_job.id, 'stop', 'controller', v_job.cause,
                                                      v_job.cause, p_now));
    end loop;
    return v_out;
end;
$$;

-- Purpose: whether task 0 of an attempt has ended. Locks: none.
create or replace function xce.head_has_ended(p_job bigint, p_attempt integer)
returns boolean
language sql
stable
as $$
    select exists (select from xce.task t
                    where t.job_id = p_job and t.attempt = p_attempt and t.index = 0 and not t.is_open)
$$;

-- Purpose: what a task's end counts as an exit code: its own, 128 + signal, or 127 where it could not
--   be started, as shells do. Null for tasks that were released, withdrawn or lost (PROTOCOL 21).
-- Locks: none.
create or replace function xce.counted_exit_code(p_task xce.task)
returns integer
language sql
immutable
as $$
    select case (p_task).how
           when 'exited' then (p_task).exit_code
           when 'signalled' then 128 + (p_task).signal
           when 'failed' then 127
           end
$$;

-- Purpose: the first task of an attempt that failed by itself, in the order of their ends; null where
--   none did. Tasks of a request that failed count only against that request, except a start's.
-- Locks: none.
create or replace function xce.failed_index(p_job bigint, p_attempt integer)
returns integer
language sql
stable
as $$
    select t.index
      from xce.task t
      join xce.resize_request r on r.id = t.request_id
     where t.job_id = p_job
       and t.attempt = p_attempt
       and not t.is_open
       and t.stop_cause is distinct from 'rollback'
       and (r.kind = 'start' or t.outcome = 'came_up')
       and xce.counted_exit_code(t) <> 0
     order by t.ended_at, t.index
     limit 1
$$;

-- Purpose: end, complete or requeue a stopping job whose last task has ended and whose requests are
--   all final. Only now does the attempt rise, so that no two of them ever live at once.
-- Locks: request; the caller holds the jobs' locks. Raises: RZ422.
create or replace function xce.settle_stopping_jobs(p_jobs bigint[], p_now timestamptz)
returns xce.effects
language plpgsql
as $$
declare
    v_rings text[] := '{}';
    v_job xce.job;
begin
    for v_job in
        select j.*
          from xce.job j
         where j.id = any (p_jobs)
           and j.state = 'stopping'
           and not exists (select from xce.task t where t.job_id = j.id and t.is_open)
           and not exists (select from xce.resize_request r where r.job_id = j.id and r.is_open)
         order by j.id
    loop
        v_rings := array['xce_plan', 'xce_watch'];
        if v_job.is_requeue then
            perform xce.advance_job(v_job.id, 'requeued', 'controller', p_now, v_job.reason);
            perform xce.ask_start(v_job.id, 'controller', null, p_now);
        else
            perform xce.finish_job(v_job, p_now);
        end if;
    end loop;
    return row('{}'::bigint[], '{}'::bigint[], v_rings)::xce.effects;
end;
$$;

-- Purpose: the first task of an attempt that was lost: whose end nobody saw. Null where none was.
-- Locks: none.
create or replace function xce.lost_index(p_job bigint, p_attempt integer)
returns integer
language sql
stable
as $$
    select t.index
      from xce.task t
     where t.job_id = p_job
       and t.attempt = p_attempt
       and t.how = 'lost'
     order by t.ended_at, t.index
     limit 1
$$;

-- Purpose: fire a stopping job's last edge: `completed` when it ended by itself with exit code 0. A
--   loss is nobody's failure and has no exit code (PROTOCOL 21); where it decided, the reason says so.
-- Locks: job (held). Raises: RZ422.
create or replace function xce.finish_job(p_job xce.job, p_now timestamptz)
returns void
language plpgsql
as $$
declare
    v_index integer := xce.failed_index(p_job.id, p_job.attempt);
    v_code integer;
    v_is_natural boolean := p_job.stop_cause in ('no_member_left', 'head_ended');
begin
    if p_job.ends_when = 'head' then
        v_index := 0;
    end if;
    select xce.counted_exit_code(t) into v_code
      from xce.task t
     where t.job_id = p_job.id
       and t.attempt = p_job.attempt
       and t.index = v_index;
    if v_index is null and exists (select from xce.task t
                                    where t.job_id = p_job.id and t.attempt = p_job.attempt
                                      and xce.counted_exit_code(t) = 0) then
        v_code := 0;
    end if;
    if v_is_natural and v_code = 0 then
        perform xce.advance_job(p_job.id, 'completed', 'controller', p_now, null, p_exit_code => 0);
    else
        perform xce.advance_job(p_job.id, 'ended', 'controller', p_now,
                                case when v_code <> 0 and (v_is_natural or p_job.stop_cause = 'task_failed')
                                     then format('task %s ended with exit code %s', v_index, v_code)
                                     when v_is_natural and v_code is null
                                     then coalesce('task ' || xce.lost_index(p_job.id, p_job.attempt) || ' was lost', p_job.reason)
                                     else p_job.reason end,
                                p_exit_code => v_code);
    end if;
end;
$$;
