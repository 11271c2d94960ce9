-- Purpose: what a ticket that somebody showed at this host's port is good for; it is used up with that.
--   Null where it is unknown, used, expired or for another host, and where this incarnation is over.
-- Locks: the ticket. Raises: RZ404.
create or replace function xce.worker_redeem(p_incarnation bigint, p_sha256 bytea)
returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_host xce.host := xce.my_host();
    v_ticket xce.ticket;
begin
    if v_host.incarnation <> p_incarnation or v_host.state = 'lost' then
        return null;
    end if;
    -- Only here is it looked at who shows it: a host cannot use up what is another's.
    delete from xce.ticket k
     where k.sha256 = p_sha256
       and k.host_id = v_host.id
    returning k.* into v_ticket;
    if not found or v_ticket.expires_at <= clock_timestamp() then
        return null;
    end if;
    return (select jsonb_build_object(
                       'purpose', v_ticket.purpose, 'job_id', t.job_id, 'attempt', t.attempt, 'index', t.index,
                       'state', t.state, 'host', v_host.name, 'stdout', l.stdout, 'stderr', l.stderr)
              from xce.task t
              join xce.job_launch l on l.job_id = t.job_id
             where t.job_id = v_ticket.job_id
               and t.attempt = v_ticket.attempt
               and t.index = v_ticket.task_index);
end;
$$;
