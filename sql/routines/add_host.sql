-- Purpose: make a host known, in `joining` until its worker has reconciled; a second call for a name
--   that is known changes nothing and answers its id. Administrators only.
-- Locks: host (new). Raises: unique_violation for a login in use.
create or replace function xce.add_host(
    p_name text,
    p_cpus integer,
    p_mem_mib bigint,
    p_gpus integer,
    p_labels jsonb,
    p_login name
)
returns bigint
language plpgsql
as $$
declare
    v_id bigint;
begin
    select h.id into v_id from xce.host h where h.name = p_name and h.state <> 'removed';
    if found then
        return v_id;
    end if;
    return xce.insert_host(p_name, p_login, jsonb_build_object('cpus', p_cpus, 'mem_mib', p_mem_mib, 'gpus', p_gpus,
                                                               'labels', p_labels), null, clock_timestamp());
end;
$$;

-- Purpose: make a user known; a second call changes nothing and answers its id. Locks: none.
create or replace function xce.add_user(p_name text, p_is_operator boolean, p_os_user text)
returns bigint
language sql
as $$
    with made as (
        insert into xce.user_account (name, is_operator, os_user)
        values (p_name, p_is_operator, p_os_user)
        on conflict (name) do nothing
        returning id
    )
    select m.id from made m
    union all
    select u.id from xce.user_account u where u.name = p_name
    limit 1
$$;

-- Purpose: keep a token by its SHA-256; the token itself never reaches the database. Locks: none.
create or replace function xce.add_token(p_user_id bigint, p_role text, p_sha256 bytea, p_expires_at timestamptz)
returns bigint
language sql
as $$
    insert into xce.token (user_id, role, sha256, expires_at)
    values (p_user_id, p_role, p_sha256, p_expires_at)
    returning id
$$;
