-- Purpose: the only writer of a task's state. Moves all of p_ids along p_event, writes their history
--   and closes the allocation ranges of those that ended, with what they used. p_facts, parallel to p_ids, carries what
--   the event says: outcome, how, exit_code, signal, reason, cpu_used_us, mem_peak_mib, incarnation,
--   stop_cause, stop_grace_s, charged_until. A range ends at the greatest of its start and p_now.
-- Locks: task, allocation. Raises: RZ422.
create or replace function xce.advance_tasks(
    p_ids bigint[],
    p_event text,
    p_actor text,
    p_now timestamptz,
    p_facts jsonb[],
    p_epoch bigint default null,
    p_actor_id bigint default null
)
returns void
language plpgsql
as $$
declare
    v_moved bigint;
    v_has_ended boolean;
begin
    with moving as (
        select t.id, t.state as source, e.target, e.target = 'ended' as is_end, i.facts
          from unnest(p_ids, p_facts) as i (id, facts)
          join xce.task t on t.id = i.id
          join xce.edge e on e.lifecycle = 'task'
                         and e.source = t.state
                         and e.event = p_event
                         and not e.retired
                         and p_actor = any (e.actors)
    ),
    moved as (
        update xce.task t
           set state = m.target,
               version = t.version + 1,
               outcome = coalesce(t.outcome, m.facts ->> 'outcome'),
               how = m.facts ->> 'how',
               reason = coalesce(m.facts ->> 'reason', t.reason),
               exit_code = (m.facts ->> 'exit_code')::integer,
               signal = (m.facts ->> 'signal')::integer,
               cpu_used_us = (m.facts ->> 'cpu_used_us')::bigint,
               mem_peak_mib = (m.facts ->> 'mem_peak_mib')::bigint,
               incarnation = coalesce((m.facts ->> 'incarnation')::bigint, t.incarnation),
               stop_cause = coalesce(t.stop_cause, m.facts ->> 'stop_cause'),
               stop_grace_s = coalesce(t.stop_grace_s, (m.facts ->> 'stop_grace_s')::numeric),
               started_at = case when p_event = 'up' then p_now else t.started_at end,
               ended_at = case when m.is_end then p_now end
          from moving m
         where t.id = m.id
        returning t.id, t.version, t.job_id, t.attempt, m.source, m.target, m.facts
    ),
    written as (
        insert into xce.history (lifecycle, row_id, version, at, job_id, attempt, source, event, target,
                                 actor, actor_id, reason, detail, generation, epoch, era)
        select 'task', m.id, m.version, p_now, m.job_id, m.attempt, m.source, p_event, m.target,
               p_actor, p_actor_id, coalesce(m.facts ->> 'reason', m.facts ->> 'stop_cause'), m.facts,
               j.generation, p_epoch, (select f.era from xce.fence f)
          from moved m
          join xce.job j on j.id = m.job_id
    )
    select count(*), coalesce(bool_or(m.target = 'ended'), false) into v_moved, v_has_ended from moved m;
    if v_moved <> coalesce(cardinality(p_ids), 0) then
        raise exception 'task: % may not % all of %', p_actor, p_event, p_ids using errcode = 'RZ422';
    end if;
    if not v_has_ended then
        return;
    end if;
    update xce.allocation a
       set during = tstzrange(lower(a.during),
                              greatest(lower(a.during), coalesce((i.facts ->> 'charged_until')::timestamptz, p_now))),
           cpu_used_us = t.cpu_used_us,
           mem_peak_mib = t.mem_peak_mib
      from unnest(p_ids, p_facts) as i (id, facts)
      join xce.task t on t.id = i.id and t.state = 'ended'
     where a.task_id = i.id
       and upper_inf(a.during);
end;
$$;
