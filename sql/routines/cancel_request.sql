-- Purpose: end pending and placed requests as cancelled: their holds are dropped and the tasks that
--   a shrink had reserved are free to be named again.
-- Locks: request, task; the caller holds the jobs' locks. Raises: RZ422.
create or replace function xce.drop_requests(
    p_ids bigint[],
    p_reason text,
    p_actor text,
    p_now timestamptz,
    p_epoch bigint default null,
    p_actor_id bigint default null
)
returns xce.effects
language plpgsql
as $$
declare
    v_unheld bigint[];
begin
    if coalesce(cardinality(p_ids), 0) = 0 then
        return row('{}', '{}', '{}')::xce.effects;
    end if;
    select coalesce(array_agg(r.id), '{}') into v_unheld
      from xce.resize_request r
     where r.id = any (p_ids)
       and r.state = 'placed';
    perform xce.advance_requests(p_ids, 'cancel', p_actor, p_now,
                                 array_fill(p_reason, array[cardinality(p_ids)]), p_epoch, p_actor_id);
    update xce.task t
       set shrink_id = null
     where t.shrink_id = any (p_ids)
       and t.is_member;
    return row('{}'::bigint[], v_unheld, array['xce_plan', 'xce_watch'])::xce.effects;
end;
$$;
