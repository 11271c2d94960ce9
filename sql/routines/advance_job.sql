-- Purpose: the only writer of a job's state. Moves one job along p_event and writes its history.
--   The columns that belong to an edge (attempt, exit code, times) change with it.
-- Locks: job. Raises: RZ422.
create or replace function xce.advance_job(
    p_id bigint,
    p_event text,
    p_actor text,
    p_now timestamptz,
    p_reason text default null,
    p_epoch bigint default null,
    p_actor_id bigint default null,
    p_exit_code integer default null
)
returns void
language plpgsql
as $$
declare
    v_job xce.job;
    v_edge xce.edge;
begin
    select j.* into v_job from xce.job j where j.id = p_id for no key update;
    select e.* into v_edge
      from xce.edge e
     where e.lifecycle = 'job'
       and e.source = v_job.state
       and e.event = p_event
       and not e.retired
       and p_actor = any (e.actors);
    if not found then
        raise exception 'job %: % may not % in state %', p_id, p_actor, p_event, v_job.state
              using errcode = 'RZ422';
    end if;
    update xce.job j
       set state = v_edge.target,
           -- Why it stops is worth more than that it is held meanwhile.
           reason = case when v_job.state = 'stopping' and p_event in ('hold', 'release') then j.reason else p_reason end,
           version = j.version + 1,
           changed = pg_current_xact_id(),
           attempt = case when p_event = 'requeued' then j.attempt + 1 else j.attempt end,
           next_index = case when p_event = 'requeued' then 0 else j.next_index end,
           started_at = case when p_event = 'start' then p_now
                             when p_event = 'requeued' then null
                             else j.started_at end,
           exit_code = coalesce(p_exit_code, j.exit_code),
           ended_at = case when v_edge.target in ('done', 'exited') then p_now end
     where j.id = p_id
    returning j.* into v_job;
    insert into xce.history (lifecycle, row_id, version, at, job_id, attempt, source, event, target,
                             actor, actor_id, reason, detail, generation, epoch, era)
    values ('job', p_id, v_job.version, p_now, p_id, v_job.attempt, v_edge.source, p_event, v_edge.target,
            p_actor, p_actor_id, p_reason,
            case when p_exit_code is not null then jsonb_build_object('exit_code', p_exit_code) end,
            v_job.generation, p_epoch, xce.era());
end;
$$;

-- Purpose: raise the generation of jobs whose allocation changed, and the revision of their own view
--   where p_is_view. Locks: job (held by the caller).
create or replace function xce.raise_generation(p_jobs bigint[], p_is_view boolean)
returns void
language sql
as $$
    update xce.job j
       set generation = j.generation + 1,
           revision = j.revision + case when p_is_view then 1 else 0 end,
           version = j.version + 1,
           changed = pg_current_xact_id()
     where j.id = any (p_jobs)
$$;
