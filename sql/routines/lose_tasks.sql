-- Purpose: end the tasks of lost hosts that may have had a process, once something proves that they
--   have none (the fence expired, or an operator vouches). They are charged until their host's last
--   accepted heartbeat (PROTOCOL 25); one that was stopping for a shrink is released (PROTOCOL 12).
--   The caller settles their jobs and books the effects.
-- Locks: task (held by the caller, with the jobs). Raises: RZ422.
create or replace function xce.lose_tasks(
    p_hosts bigint[],
    p_reason text,
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
               'outcome', 'failed', 'reason', p_reason, 'charged_until', b.last_seen_at) order by t.id),
           array_agg(distinct t.job_id) filter (where t.state <> 'stopping')
      into v_ids, v_facts, v_unannounced
      from xce.task t
      left join xce.heartbeat b on b.host_id = t.host_id
     where t.host_id = any (p_hosts)
       and t.state in ('starting', 'running', 'stopping');
    if v_ids is null then
        return row('{}', '{}', '{}')::xce.effects;
    end if;
    if v_unannounced is not null then
        perform xce.raise_generation(v_unannounced, true);
    end if;
    perform xce.advance_tasks(v_ids, 'lost', 'controller', p_now, v_facts, p_epoch);
    return row(v_ids, '{}'::bigint[], array['xce_plan', 'xce_watch'])::xce.effects;
end;
$$;
