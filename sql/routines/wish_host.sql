-- Purpose: set or take back an operator's drain wish; what follows from it at once (draining, and
--   down where the host is empty) follows in the same transaction.
-- Locks: host, idempotency key. Raises: RZ422.
create or replace function xce.wish_host(p_call jsonb, p_now timestamptz default null)
returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_opened record;
    v_host xce.host;
    v_now timestamptz;
    v_is_drain boolean := p_call ->> 'wish' = 'drain';
    v_user bigint := (p_call ->> 'user_id')::bigint;
    v_answer jsonb;
begin
    select c.* into v_opened from xce.open_host_call(p_call, 'drain or resume', false) c;
    v_host := v_opened.host;
    v_answer := v_opened.answer;
    if v_answer is not null then
        return v_answer;
    end if;
    v_now := coalesce(p_now, clock_timestamp());
    if v_host.drain_wanted <> v_is_drain then
        update xce.host h set drain_wanted = v_is_drain where h.id = v_host.id;
        perform xce.advance_host(v_host.id, 'wish', 'operator', v_now,
                                 case when v_host.state in ('lost', 'joining') then v_host.reason
                                      when v_is_drain then 'drain wanted' end, null, v_user);
    end if;
    if v_is_drain then
        -- No worker ever had this one: nothing can run there, and nobody will ever say so.
        if v_host.state = 'joining' and v_host.incarnation = 0 then
            perform xce.advance_host(v_host.id, 'cleared', 'controller', v_now, 'no worker ever registered');
        end if;
        perform xce.settle_host(v_host.id, v_now);
    elsif v_host.state in ('draining', 'down') then
        perform xce.advance_host(v_host.id, 'resume', 'operator', v_now, null, null, v_user);
    end if;
    perform xce.keep_key(p_call, 202, 'host', v_host.id, v_now);
    return xce.acceptance(202, v_host.id, array['xce_plan', 'xce_host_' || v_host.id, 'xce_watch']);
end;
$$;
