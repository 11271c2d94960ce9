-- Purpose: the only writer of a host's state. Moves one host along p_event and writes its history, with
--   p_detail: what else the caller changed of the row.
-- Locks: host. Raises: RZ422.
create or replace function xce.advance_host(
    p_id bigint,
    p_event text,
    p_actor text,
    p_now timestamptz,
    p_reason text default null,
    p_epoch bigint default null,
    p_actor_id bigint default null,
    p_detail jsonb default null
)
returns void
language plpgsql
as $$
declare
    v_host xce.host;
    v_edge xce.edge;
begin
    select h.* into v_host from xce.host h where h.id = p_id for no key update;
    select e.* into v_edge
      from xce.edge e
     where e.lifecycle = 'host'
       and e.source = v_host.state
       and e.event = p_event
       and not e.retired
       and p_actor = any (e.actors);
    if not found then
        raise exception 'host %: % may not % in state %', p_id, p_actor, p_event, v_host.state
              using errcode = 'RZ422';
    end if;
    update xce.host h
       set state = v_edge.target,
           reason = p_reason,
           version = h.version + 1,
           changed = pg_current_xact_id()
     where h.id = p_id
    returning h.* into v_host;
    insert into xce.history (lifecycle, row_id, version, at, source, event, target,
                             actor, actor_id, reason, detail, epoch, era)
    values ('host', p_id, v_host.version, p_now, v_edge.source, p_event, v_edge.target,
            p_actor, p_actor_id, p_reason, p_detail, p_epoch, xce.era());
end;
$$;
