-- Purpose: fire every edge that follows from recorded facts, for jobs whose locks the caller holds:
--   shrinks whose tasks ended, grows and starts that are decided, jobs that end. Called last by each
--   routine that records a fact, and by the poll; finding nothing to do is the usual case.
-- Locks: request, task (ascending). Raises: RZ422. Takes no epoch: the facts decide (R8).
create or replace function xce.settle_jobs(p_jobs bigint[], p_now timestamptz)
returns xce.effects
language plpgsql
as $$
declare
    v_out xce.effects := row('{}', '{}', '{}')::xce.effects;
    v_has record;
begin
    -- None of the steps brings a request into a state that an earlier one looks for, so what is not
    -- there now need not be looked for; most often that is nearly all of it.
    select coalesce(bool_or(r.kind = 'shrink' and r.state = 'pending'), false) as pending_shrinks,
           coalesce(bool_or(r.state = 'committed'), false) as committed,
           coalesce(bool_or(r.state = 'stopping'), false) as stopping,
           coalesce(bool_or(r.kind = 'grow' and r.state in ('pending', 'placed')), false) as waiting_grows,
           exists (select from xce.task t where t.job_id = any (p_jobs) and t.loss_due) as losses
      into v_has
      from xce.resize_request r
     where r.job_id = any (p_jobs)
       and r.is_open;
    -- Before a start fails, or a job ends because nobody is left: a loss is no failure (PROTOCOL 23).
    if v_has.losses then
        v_out := xce.join_effects(v_out, xce.settle_losses(p_jobs, p_now));
    end if;
    if v_has.committed then
        v_out := xce.join_effects(v_out, xce.settle_started(p_jobs, p_now));
        v_out := xce.join_effects(v_out, xce.settle_failed(p_jobs, p_now));
        -- One that waited for a grow has its answer now.
        if v_has.losses then
            v_out := xce.join_effects(v_out, xce.settle_losses(p_jobs, p_now));
        end if;
    end if;
    v_out := xce.join_effects(v_out, xce.settle_running_jobs(p_jobs, p_now));
    if v_has.pending_shrinks then
        v_out := xce.join_effects(v_out, xce.settle_named_tasks(p_jobs, p_now));
    end if;
    if v_has.stopping then
        v_out := xce.join_effects(v_out, xce.settle_released(p_jobs, p_now));
    end if;
    if v_has.waiting_grows then
        v_out := xce.join_effects(v_out, xce.settle_unfit_grows(p_jobs, p_now));
    end if;
    return xce.join_effects(v_out, xce.settle_stopping_jobs(p_jobs, p_now));
end;
$$;

-- Purpose: a named task that ended by itself, or was taken back with its grow, before `stop` drops out
--   of its pending shrink; a shrink with none left is cancelled (PROTOCOL 11).
-- Locks: request, task. Raises: RZ422.
create or replace function xce.settle_named_tasks(p_jobs bigint[], p_now timestamptz)
returns xce.effects
language plpgsql
as $$
declare
    v_shrinks bigint[];
    v_empty bigint[];
begin
    with dropped as (
        update xce.task t
           set shrink_id = null
          from xce.resize_request r
         where r.job_id = any (p_jobs)
           and r.kind = 'shrink'
           and r.state = 'pending'
           and t.shrink_id = r.id
           and not t.is_member
        returning r.id, t.index
    ),
    shrunk as (
        update xce.resize_request r
           set task_indices = array(select i from unnest(r.task_indices) as i
                                     where i not in (select d.index from dropped d where d.id = r.id))
         where r.id in (select d.id from dropped d)
        returning r.id, r.task_indices
    )
    select array_agg(s.id order by s.id) filter (where s.task_indices <> '{}'),
           array_agg(s.id order by s.id) filter (where s.task_indices = '{}')
      into v_shrinks, v_empty
      from shrunk s;
    if v_shrinks is not null then
        perform xce.amend_requests(v_shrinks, 'a named task left before', 'controller', p_now);
    end if;
    return xce.drop_requests(v_empty, 'nothing_to_release', 'controller', p_now);
end;
$$;

-- Purpose: write an `amend` of requests into history after a column of theirs changed; a shrink asks
--   for exactly the tasks it names, so its bounds are set down to what is left of them.
-- Locks: request. Raises: RZ422.
create or replace function xce.amend_requests(
    p_ids bigint[],
    p_reason text,
    p_actor text,
    p_now timestamptz,
    p_actor_id bigint default null
)
returns void
language plpgsql
as $$
begin
    update xce.resize_request r
       set tasks_max = cardinality(r.task_indices),
           tasks_min = cardinality(r.task_indices)
     where r.id = any (p_ids)
       and r.kind = 'shrink';
    perform xce.advance_requests(p_ids, 'amend', p_actor, p_now,
                                 array_fill(p_reason, array[cardinality(p_ids)]), p_actor_id => p_actor_id);
end;
$$;

-- Purpose: how far each committed start and grow of these jobs is: a start is judged by the job's
--   minimum, a grow by its own (PROTOCOL 2, 3). `others` names the tasks that did not come up.
-- Locks: none.
create or replace function xce.progress(p_jobs bigint[])
returns table (id bigint, job_id bigint, kind text, need bigint, came_up bigint, undecided bigint,
               total bigint, others text)
language sql
stable
as $$
    select r.id, r.job_id, r.kind,
           greatest(1, case when r.kind = 'start' then j.min_tasks else r.tasks_min end)::bigint,
           count(*) filter (where t.outcome = 'came_up'),
           count(*) filter (where t.outcome is null),
           count(*),
           string_agg(format('task %s: %s', t.index,
                             case when t.outcome = 'withdrawn' then coalesce('withdrawn by #' || t.shrink_id, 'withdrawn')
                                  else coalesce(t.reason, 'exit code ' || t.exit_code, 'signal ' || t.signal, 'failed') end),
                      '; ' order by t.index) filter (where t.outcome <> 'came_up')
      from xce.resize_request r
      join xce.job j on j.id = r.job_id
      join xce.task t on t.request_id = r.id
     where r.job_id = any (p_jobs)
       and r.state = 'committed'
     group by r.id, j.min_tasks
$$;

-- Purpose: a committed request with every task decided and at least its minimum up is `running`.
-- Locks: request. Raises: RZ422.
create or replace function xce.settle_started(p_jobs bigint[], p_now timestamptz)
returns xce.effects
language plpgsql
as $$
declare
    v_ids bigint[];
    v_granted integer[];
    v_reasons text[];
    v_grown bigint[];
begin
    select array_agg(p.id order by p.id), array_agg(p.came_up::integer order by p.id),
           array_agg(case when p.came_up < p.total
                          then format('%s of %s came up; %s', p.came_up, p.total, p.others) end order by p.id),
           array_agg(distinct p.job_id) filter (where p.kind = 'grow')
      into v_ids, v_granted, v_reasons, v_grown
      from xce.progress(p_jobs) p
     where p.undecided = 0
       and p.came_up >= p.need;
    if v_ids is null then
        return row('{}', '{}', '{}')::xce.effects;
    end if;
    perform xce.advance_requests(v_ids, 'started', 'controller', p_now, v_reasons, p_granted => v_granted);
    update xce.job j
       set revision = j.revision + 1
     where j.id = any (v_grown);
    -- A shrink may have waited for this one (PROTOCOL 10).
    return row('{}'::bigint[], '{}'::bigint[], array['xce_plan', 'xce_watch'])::xce.effects;
end;
$$;

-- Purpose: a committed request whose minimum cannot come up any more fails at once; only its own
--   tasks are taken back. A failed start stops its job.
-- Locks: request, task. Raises: RZ422.
create or replace function xce.settle_failed(p_jobs bigint[], p_now timestamptz)
returns xce.effects
language plpgsql
as $$
declare
    v_out xce.effects := row('{}', '{}', '{}')::xce.effects;
    v_request record;
    v_reason text;
begin
    for v_request in
        select p.* from xce.progress(p_jobs) p where p.came_up + p.undecided < p.need order by p.id
    loop
        v_reason := coalesce(xce.withdrawn_by(v_request.id),
                             format('%s of at least %s came up; %s', v_request.came_up, v_request.need, v_request.others));
        v_out := xce.join_effects(v_out, xce.fail_request(v_request.id, v_reason, p_now));
    end loop;
    return v_out;
end;
$$;

-- Purpose: the reason of a request all of whose tasks were withdrawn by shrinks (PROTOCOL 5); else null.
-- Locks: none.
create or replace function xce.withdrawn_by(p_id bigint)
returns text
language sql
stable
as $$
    select case when bool_and(t.outcome = 'withdrawn' and t.shrink_id is not null)
                then 'withdrawn by ' || string_agg(distinct '#' || t.shrink_id, ', ') end
      from xce.task t
     where t.request_id = p_id
$$;

-- Purpose: fail one committed request: its own tasks are taken back, those of others untouched.
-- Locks: task. Raises: RZ422.
create or replace function xce.fail_request(p_id bigint, p_reason text, p_now timestamptz)
returns xce.effects
language plpgsql
as $$
declare
    v_request xce.resize_request;
    v_members bigint[];
    v_out xce.effects;
begin
    select r.* into v_request from xce.resize_request r where r.id = p_id for no key update;
    -- The start that failed before it in the same list has stopped the job and taken this along.
    if v_request.state <> 'committed' then
        return row('{}', '{}', '{}')::xce.effects;
    end if;
    if v_request.kind = 'start' then
        perform xce.advance_requests(array[p_id], 'fail', 'controller', p_now, array[p_reason]);
        return xce.stop_job(v_request.job_id, 'stop', 'controller', 'start_failed',
                            'start_failed: ' || p_reason, p_now);
    end if;
    select array_agg(t.id order by t.id) into v_members
      from xce.task t
     where t.request_id = p_id
       and t.is_member;
    if v_members is not null then
        perform xce.raise_generation(array[v_request.job_id], false);
    end if;
    perform xce.advance_requests(array[p_id], 'fail', 'controller', p_now, array[p_reason]);
    v_out := row('{}', '{}', array['xce_plan', 'xce_watch'])::xce.effects;
    if v_members is not null then
        v_out := xce.join_effects(v_out, xce.take_back_tasks(
            v_members, 'controller', 'rollback', p_now, p_reason => format('grow #%s failed', p_id)));
    end if;
    return v_out;
end;
$$;

-- Purpose: a stopping shrink none of whose tasks may have a process is released.
-- Locks: request. Raises: RZ422.
create or replace function xce.settle_released(p_jobs bigint[], p_now timestamptz)
returns xce.effects
language plpgsql
as $$
declare
    v_ids bigint[];
    v_granted integer[];
begin
    select array_agg(r.id order by r.id), array_agg(cardinality(r.task_indices) order by r.id)
      into v_ids, v_granted
      from xce.resize_request r
     where r.job_id = any (p_jobs)
       and r.kind = 'shrink'
       and r.state = 'stopping'
       and not exists (select from xce.task t where t.shrink_id = r.id and t.is_open);
    if v_ids is null then
        return row('{}', '{}', '{}')::xce.effects;
    end if;
    perform xce.advance_requests(v_ids, 'released', 'controller', p_now, p_granted => v_granted);
    return row('{}'::bigint[], '{}'::bigint[], array['xce_watch'])::xce.effects;
end;
$$;

-- Purpose: a pending or placed grow that relied on a shrink which was cancelled, and can no longer fit
--   below the job's maximum, is cancelled (PROTOCOL 14): in the order accepted, those whose minimum
--   still fits beside the minima before them stay.
-- Locks: request. Raises: RZ422.
create or replace function xce.settle_unfit_grows(p_jobs bigint[], p_now timestamptz)
returns xce.effects
language plpgsql
as $$
declare
    v_ids bigint[] := '{}';
    v_grow record;
    v_job bigint;
    v_size bigint;
begin
    for v_grow in
        select r.id, r.job_id, greatest(1, r.tasks_min) as least, j.max_tasks
          from xce.resize_request r
          join xce.job j on j.id = r.job_id
         where r.job_id = any (p_jobs)
           and r.is_open
           and r.kind = 'grow'
           and r.state in ('pending', 'placed')
         order by r.job_id, r.id
    loop
        if v_job is distinct from v_grow.job_id then
            v_job := v_grow.job_id;
            v_size := xce.staying_members(v_job);
        end if;
        if v_size + v_grow.least > v_grow.max_tasks then
            v_ids := v_ids || v_grow.id;
        else
            v_size := v_size + v_grow.least;
        end if;
    end loop;
    return xce.drop_requests(v_ids, 'above_max', 'controller', p_now);
end;
$$;

-- Purpose: members of a job that no open shrink names: what bounds are judged by (PROTOCOL 9, 14).
-- Locks: none.
create or replace function xce.staying_members(p_job bigint)
returns integer
language sql
stable
as $$
    select count(*)::integer
      from xce.task t
     where t.job_id = p_job
       and t.is_open
       and t.is_member
       and t.shrink_id is null
$$;
