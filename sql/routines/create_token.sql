-- Purpose: keep a new token, by its SHA-256, of which the API told the token itself. An owner makes owner
--   tokens for itself only; an operator any, but an operator's only for a user who is one.
-- Locks: idempotency key. Raises: unique_violation when two first calls with one key raced.
create or replace function xce.create_token(p_call jsonb, p_now timestamptz default null)
returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_user xce.user_account;
    v_answer jsonb := xce.replay_key(p_call);
    v_token bigint;
begin
    if v_answer is not null then
        return v_answer;
    end if;
    select u.* into v_user
      from xce.user_account u
     where case when p_call ->> 'user' is null then u.id = (p_call ->> 'user_id')::bigint
                else u.name = p_call ->> 'user' end;
    v_answer := xce.refuse_new_token(p_call, v_user);
    if v_answer is not null then
        return v_answer;
    end if;
    insert into xce.token (user_id, role, sha256, created_at, expires_at)
    values (v_user.id, p_call ->> 'role', decode(p_call ->> 'sha256', 'hex'), v_now,
            v_now + xce.seconds((p_call ->> 'expires_in_s')::numeric))
    returning id into v_token;
    perform xce.keep_key(p_call, 201, 'token', v_token, v_now);
    return xce.acceptance(201, v_token, '{}');
end;
$$;

-- Purpose: why a token is not made, or null. Locks: none.
create or replace function xce.refuse_new_token(p_call jsonb, p_user xce.user_account)
returns jsonb
language plpgsql
stable
as $$
begin
    if not (p_call ->> 'is_operator')::boolean
       and (p_call ->> 'role' <> 'owner' or p_user.id is distinct from (p_call ->> 'user_id')::bigint) then
        return xce.refusal('not_allowed', 'you may make owner tokens for yourself only; ask an operator for others', '{}');
    end if;
    if p_user.id is null then
        return xce.refusal('invalid', format('there is no user %s; add it with: xce user add %s', p_call ->> 'user', p_call ->> 'user'),
                           jsonb_build_object('path', '$.user'));
    end if;
    if p_call ->> 'role' = 'operator' and not p_user.is_operator then
        return xce.refusal('invalid', format('%s is no operator; ask for an owner token', p_user.name),
                           jsonb_build_object('path', '$.role'));
    end if;
    return null;
end;
$$;

-- Purpose: make a token useless, at once and for good; once more changes nothing. An owner's own only.
-- Locks: token. Raises: nothing.
create or replace function xce.revoke_token(p_call jsonb, p_now timestamptz default null)
returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_id bigint := (p_call ->> 'revoked_id')::bigint;
begin
    perform
       from xce.token t
      where t.id = v_id
        and ((p_call ->> 'is_operator')::boolean or t.user_id = (p_call ->> 'user_id')::bigint)
        for no key update;
    if not found then
        return xce.refusal('not_found', 'there is no such token of yours; the list of tokens tells which there are', '{}');
    end if;
    update xce.token t
       set revoked_at = coalesce(p_now, clock_timestamp())
     where t.id = v_id
       and t.revoked_at is null;
    return xce.acceptance(204, v_id, '{}');
end;
$$;
