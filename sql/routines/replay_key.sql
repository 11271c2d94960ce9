-- Purpose: the answer to a call whose idempotency key is known: the first outcome again, or a refusal
--   where the body is another one. Null where the key is new or none was sent. Every call is refused
--   while a restored database waits: what it would change is not the truth yet.
-- Locks: none. Looked up under the job's lock, so that a concurrent repeat has waited for the first.
create or replace function xce.replay_key(p_call jsonb)
returns jsonb
language plpgsql
stable
as $$
declare
    v_key xce.idempotency_key;
begin
    if xce.is_paused() then
        return xce.refusal('unavailable',
                           'this database was restored from a backup and waits for an operator: xce restore', '{}');
    end if;
    if p_call ->> 'key' is null then
        return null;
    end if;
    select k.* into v_key
      from xce.idempotency_key k
     where k.user_id = (p_call ->> 'user_id')::bigint
       and k.method = p_call ->> 'method'
       and k.path = p_call ->> 'path'
       and k.key = p_call ->> 'key';
    if not found then
        return null;
    end if;
    if v_key.body_sha256 <> p_call ->> 'body_sha256' then
        return xce.refusal('idempotency_key_reused',
                           'this Idempotency-Key was sent before with another body; use a new key', '{}');
    end if;
    return jsonb_build_object('ok', true, 'status', v_key.status, 'id', v_key.resource_id,
                              'replay', true, 'rings', '[]'::jsonb);
end;
$$;

-- Purpose: keep the key of an accepted call beside its effect, last in the transaction: where two
--   first calls raced (a submit locks no job) the second fails here, rolls back and replays.
-- Locks: idempotency key. Raises: unique_violation.
create or replace function xce.keep_key(p_call jsonb, p_status integer, p_resource text, p_id bigint, p_now timestamptz)
returns void
language sql
as $$
    insert into xce.idempotency_key (user_id, method, path, key, body_sha256, status, resource, resource_id, created_at)
    select (p_call ->> 'user_id')::bigint, p_call ->> 'method', p_call ->> 'path', p_call ->> 'key',
           p_call ->> 'body_sha256', p_status, p_resource, p_id, p_now
     where p_call ->> 'key' is not null
$$;

-- Purpose: the shape of every refusal: a stable code, a sentence that says what to do, the figures.
-- Locks: none.
create or replace function xce.refusal(p_code text, p_detail text, p_figures jsonb)
returns jsonb
language sql
immutable
as $$
    select jsonb_build_object('ok', false, 'code', p_code, 'detail', p_detail, 'figures', p_figures,
                              'rings', '[]'::jsonb)
$$;

-- Purpose: the shape of every acceptance. Locks: none.
create or replace function xce.acceptance(p_status integer, p_id bigint, p_rings text[])
returns jsonb
language sql
immutable
as $$
    select jsonb_build_object('ok', true, 'status', p_status, 'id', p_id, 'replay', false,
                              'rings', to_jsonb(p_rings))
$$;

-- Purpose: the actor that a caller acts as. Locks: none.
create or replace function xce.caller_actor(p_call jsonb)
returns text
language sql
immutable
as $$
    select case when p_call ->> 'origin' = 'job' then 'job'
                when (p_call ->> 'is_operator')::boolean then 'operator'
                else 'owner' end
$$;

-- Purpose: refuse a call whose token was revoked or expired, or whose operator was demoted, since the API
--   last looked; null for a living one. Calls without `token_id` were looked up just now.
-- Locks: none.
create or replace function xce.refuse_token(p_call jsonb)
returns jsonb
language plpgsql
stable
as $$
begin
    if p_call ->> 'token_id' is null or exists (
        select from xce.token t
          join xce.user_account u on u.id = t.user_id
         where t.id = (p_call ->> 'token_id')::bigint
           and t.revoked_at is null
           and (t.expires_at is null or t.expires_at > clock_timestamp())
           and (t.role <> 'operator' or u.is_operator)
    ) then
        return null;
    end if;
    return xce.refusal('unauthenticated', 'the token is unknown, revoked or expired; ask an operator for one', '{}');
end;
$$;
