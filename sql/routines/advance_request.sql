-- Purpose: the only writer of a request's state. Moves all of p_ids along p_event and writes their
--   history. With its commit a request names the tasks that were made for it. The caller holds the jobs' locks and has judged; an edge that the table does not have
--   for this actor is a broken program, not an answer.
-- Locks: request. Raises: RZ422.
create or replace function xce.advance_requests(
    p_ids bigint[],
    p_event text,
    p_actor text,
    p_now timestamptz,
    p_reasons text[] default null,
    p_epoch bigint default null,
    p_actor_id bigint default null,
    p_granted integer[] default null
)
returns void
language plpgsql
as $$
declare
    v_moved bigint;
begin
    with moving as (
        select r.id, r.kind, r.state as source, e.target, s.is_terminal, i.reason, i.granted
          from unnest(p_ids, p_reasons, p_granted) as i (id, reason, granted)
          join xce.resize_request r on r.id = i.id
          join xce.edge e on e.lifecycle = r.kind
                         and e.source = r.state
                         and e.event = p_event
                         and not e.retired
                         and p_actor = any (e.actors)
          join xce.state s on s.lifecycle = r.kind and s.state = e.target
    ),
    moved as (
        update xce.resize_request r
           set state = m.target,
               reason = m.reason,
               version = r.version + 1,
               changed = pg_current_xact_id(),
               tasks_granted = coalesce(m.granted, r.tasks_granted),
               task_indices = case when p_event = 'commit' and m.kind <> 'shrink'
                                   then array(select t.index from xce.task t where t.request_id = r.id order by t.index)
                                   else r.task_indices end,
               committed_at = case when p_event = 'commit' then p_now else r.committed_at end,
               start_deadline_at = case when p_event = 'commit' then p_now + xce.seconds(j.start_s)
                                        else r.start_deadline_at end,
               generation = case when p_event in ('commit', 'stop') then j.generation else r.generation end,
               finished_at = case when m.is_terminal then p_now end
          from moving m, xce.job j
         where r.id = m.id
           and j.id = r.job_id
        returning r.id, r.version, r.job_id, r.attempt, m.kind, m.source, m.target, m.reason, m.granted,
                  j.generation
    )
    insert into xce.history (lifecycle, row_id, version, at, job_id, attempt, source, event, target,
                             actor, actor_id, reason, detail, generation, epoch, era)
    select m.kind, m.id, m.version, p_now, m.job_id, m.attempt, m.source, p_event, m.target,
           p_actor, p_actor_id, m.reason,
           case when m.granted is not null then jsonb_build_object('tasks_granted', m.granted) end,
           m.generation, p_epoch, (select f.era from xce.fence f)
      from moved m;
    get diagnostics v_moved = row_count;
    if v_moved <> coalesce(cardinality(p_ids), 0) then
        raise exception 'request: % may not % all of %', p_actor, p_event, p_ids using errcode = 'RZ422';
    end if;
end;
$$;
