-- Purpose: the poll behind settle_jobs: look again at jobs that may have something to follow from, one
--   after the other, so that one that cannot be settled holds up no other; it is left as it was and the
--   server's log says why.
-- Locks: fence, job (skipping busy ones), request, task, host. Raises: RZ410.
create or replace function xce.settle_due(p_epoch bigint, p_now timestamptz default null)
returns text[]
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_now timestamptz;
    v_job bigint;
    v_jobs bigint[];
    v_out xce.effects := row('{}', '{}', '{}')::xce.effects;
begin
    perform xce.pass_fence(p_epoch);
    v_jobs := array(select j.id
                      from xce.job j
                     where j.is_open
                       and j.id in (select d.id from xce.due_jobs() d limit 200)
                     order by j.id
                       for no key update skip locked);
    if cardinality(v_jobs) = 0 then
        return '{}';
    end if;
    perform from xce.resize_request r where r.job_id = any (v_jobs) and r.is_open order by r.id for no key update;
    v_now := coalesce(p_now, clock_timestamp());
    foreach v_job in array v_jobs
    loop
        begin
            v_out := xce.join_effects(v_out, xce.settle_jobs(array[v_job], v_now));
        exception
            when sqlstate 'RZ422' or integrity_constraint_violation then
                raise warning 'job % is not settled: %', v_job, sqlerrm;
        end;
    end loop;
    return xce.free_hosts(v_out, v_now);
end;
$$;

-- Purpose: jobs for which a recorded fact may call for an edge that was not fired with it: a request or
--   a job whose tasks are all decided or gone, a named task that left. Those with nothing open but
--   members that run are not read. May name a job too many, never one too few.
-- Locks: none.
create or replace function xce.due_jobs()
returns table (id bigint)
language sql
stable
as $$
    select r.job_id
      from xce.resize_request r
     where r.is_open
       and (r.state = 'committed' and not exists (select from xce.task t
                                                   where t.request_id = r.id and t.outcome is null)
            or r.state = 'committed' and exists (select from xce.task t
                                                  where t.request_id = r.id and t.outcome <> 'came_up')
            or r.state = 'stopping' and not exists (select from xce.task t where t.shrink_id = r.id and t.is_open)
            or r.state = 'pending' and r.kind = 'shrink'
               and exists (select from xce.task t where t.shrink_id = r.id and not t.is_member)
            or r.state in ('pending', 'placed') and r.kind = 'grow')
    union
    select t.job_id from xce.task t where t.loss_due
    union
    select j.id
      from xce.job j
     where j.is_open
       and (j.state = 'stopping' and not exists (select from xce.task t where t.job_id = j.id and t.is_open)
            or j.state = 'running' and not exists (select from xce.task t
                                                    where t.job_id = j.id and t.is_open and t.is_member)
            or j.state = 'running' and j.ends_when = 'head' and xce.head_has_ended(j.id, j.attempt)
            or j.state = 'running' and j.on_task_failure = 'end_job' and xce.failed_index(j.id, j.attempt) is not null)
$$;

-- Purpose: drop idempotency keys, tickets and recorded ticks past their keeping, and make room for the history of
--   the months to come. Locks: none but the rows'. Raises: nothing.
create or replace function xce.expire_rows(p_now timestamptz default null)
returns text[]
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    delete from xce.idempotency_key k
     where k.created_at < v_now - make_interval(days => xce.setting_value('key_keep_days')::integer);
    delete from xce.ticket k where k.expires_at <= v_now;
    delete from xce.tick k
     where k.at < v_now - make_interval(days => xce.setting_value('history_keep_days')::integer);
    perform xce.make_history_months(v_now);
    return '{}';
end;
$$;
