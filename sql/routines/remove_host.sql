-- Purpose: down -> removed, for good; the name may be used again, by another row. Whatever may still
--   have a process or a hold there keeps it: it has to be drained, or vouched for, first.
-- Locks: host, idempotency key. Raises: RZ422.
create or replace function xce.remove_host(p_call jsonb, p_now timestamptz default null)
returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_user bigint := (p_call ->> 'user_id')::bigint;
    v_opened record;
    v_host xce.host;
    v_now timestamptz;
    v_answer jsonb;
begin
    select c.* into v_opened from xce.open_host_call(p_call, 'remove', false) c;
    v_host := v_opened.host;
    v_answer := v_opened.answer;
    if v_answer is not null then
        return v_answer;
    end if;
    v_answer := xce.refuse_remove(v_host);
    if v_answer is not null then
        return v_answer;
    end if;
    v_now := coalesce(p_now, clock_timestamp());
    perform xce.advance_host(v_host.id, 'remove', 'operator', v_now, null, null, v_user);
    perform xce.keep_key(p_call, 204, 'host', v_host.id, v_now);
    return xce.acceptance(204, v_host.id, array['xce_watch']);
end;
$$;

-- Purpose: why a host is not removed, or null. Locks: none.
create or replace function xce.refuse_remove(p_host xce.host)
returns jsonb
language sql
stable
as $$
    select xce.refuse_unless_empty(p_host, case p_host.state
               when 'lost' then format('host %s is lost; make sure that it is off, vouch for that with `down` and '
                                       '{"confirm_dead": true}, then remove it', p_host.name)
               else format('host %s is %s; drain it first, and remove it once it is down', p_host.name, p_host.state) end)
     where p_host.state <> 'down'
        or xce.jobs_on_host(p_host.id) <> '{}'
$$;

-- Purpose: the refusal `drain_first`, with what is still on the host. Locks: none.
create or replace function xce.refuse_unless_empty(p_host xce.host, p_detail text)
returns jsonb
language sql
stable
as $$
    select xce.refusal('drain_first', p_detail, jsonb_build_object(
               'state', p_host.state,
               'open_tasks', (select count(*) from xce.task t where t.host_id = p_host.id and t.is_open),
               'held_tasks', (select coalesce(sum(d.tasks), 0) from xce.hold d where d.host_id = p_host.id)))
$$;
