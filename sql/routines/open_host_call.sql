-- Purpose: the opening of every operator's call on a host: the right, the row locked, a repeated call,
--   and whether there is such a host (p_may_be_new: it need not be). The answer is null to go on.
-- Locks: host, idempotency key. Raises: nothing.
create or replace function xce.open_host_call(
    p_call jsonb,
    p_deed text,
    p_may_be_new boolean,
    out host xce.host,
    out answer jsonb
)
language plpgsql
as $$
begin
    if not (p_call ->> 'is_operator')::boolean then
        answer := xce.refusal('not_allowed', format('only an operator may %s a host; ask one', p_deed), '{}');
        return;
    end if;
    select h.* into host
      from xce.host h
     where h.name = p_call ->> 'name'
       and h.state <> 'removed'
       for no key update;
    answer := xce.replay_key(p_call);
    if answer is null and host.id is null and not p_may_be_new then
        answer := xce.refusal('not_found', 'there is no such host; the list of hosts tells which there are', '{}');
    end if;
end;
$$;
