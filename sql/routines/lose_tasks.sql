-- Purpose: end tasks of lost hosts that may have had a process, once something proves that they have
--   none: p_evidence is `fence` or `operator`. They are charged until their host's last accepted
--   heartbeat (PROTOCOL 25); one that was stopping for a shrink is released (PROTOCOL 12). Those that are
--   ended already are left alone. The caller settles their jobs and books the effects.
-- Locks: task (held by the caller, with the jobs). Raises: RZ422.
create or replace function xce.lose_tasks(
    p_ids bigint[],
    p_evidence text,
    p_now timestamptz,
    p_epoch bigint default null
)
returns xce.effects
language plpgsql
as $$
declare
    v_ids bigint[];
    v_facts jsonb[];
    v_unannounced bigint[];
begin
    select array_agg(t.id order by t.id),
           array_agg(jsonb_build_object(
               'how', case when t.state = 'stopping' and t.stop_cause = 'shrink' then 'released' else 'lost' end,
               'outcome', 'failed', 'evidence', p_evidence, 'charged_until', b.last_seen_at,
               'reason', format('host %s was lost%s', h.name, case p_evidence when 'operator' then ' and is off' end)
           ) order by t.id),
           array_agg(distinct t.job_id) filter (where t.state <> 'stopping')
      into v_ids, v_facts, v_unannounced
      from xce.task t
      join xce.host h on h.id = t.host_id
      left join xce.heartbeat b on b.host_id = t.host_id
     where t.id = any (p_ids)
       and t.state in ('starting', 'running', 'stopping');
    if v_ids is null then
        return row('{}', '{}', '{}')::xce.effects;
    end if;
    if v_unannounced is not null then
        perform xce.raise_generation(v_unannounced, true);
    end if;
    perform xce.advance_tasks(v_ids, 'lost', 'controller', p_now, v_facts, p_epoch);
    perform xce.note_losses(v_ids);
    return row(v_ids, '{}'::bigint[], array['xce_plan', 'xce_watch'])::xce.effects;
end;
$$;

-- Purpose: of tasks that ended with their host, mark those that `on_host_loss` acts on (PROTOCOL 23): lost
--   after they came up or during a start, and before a stop. A grow's task that was lost before it came up
--   counts against its grow alone.
-- Locks: task (held). Raises: nothing.
create or replace function xce.note_losses(p_ids bigint[])
returns void
language sql
as $$
    update xce.task t
       set loss_due = true
      from xce.resize_request r
     where t.id = any (p_ids)
       and r.id = t.request_id
       and xce.loss_matters(t, r.kind)
$$;

-- Purpose: whether the loss of this task is its job's matter. Locks: none.
create or replace function xce.loss_matters(p_task xce.task, p_kind text)
returns boolean
language sql
immutable
as $$
    select ((p_task).outcome = 'came_up' or p_kind = 'start')
       and coalesce((p_task).stop_cause, 'host_lost') = 'host_lost'
$$;
