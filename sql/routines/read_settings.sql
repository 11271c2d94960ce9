-- Purpose: the value of one setting. Locks: none. Raises: RZ404 for an unknown name.
create or replace function xce.setting_value(p_name text)
returns numeric
language plpgsql
stable
as $$
declare
    v_value numeric;
begin
    select s.value into v_value from xce.setting s where s.name = p_name;
    if not found then
        raise exception 'no setting %', p_name using errcode = 'RZ404';
    end if;
    return v_value;
end;
$$;

-- Purpose: seconds as an interval. Locks: none.
create or replace function xce.seconds(p_seconds numeric)
returns interval
language sql
immutable
as $$
    select make_interval(secs => p_seconds::double precision)
$$;

-- Purpose: the era that history is written under; a restore raises it. Locks: none.
create or replace function xce.era()
returns integer
language sql
stable
as $$
    select f.era from xce.fence f where f.id = 1
$$;

-- Purpose: refuse a leader whose epoch is over. The fence row stays share-locked to the end of the
--   transaction, so that a successor's first epoch waits for it. Locks: fence. Raises: RZ410.
create or replace function xce.pass_fence(p_epoch bigint)
returns void
language plpgsql
as $$
declare
    v_epoch bigint;
begin
    select f.epoch into v_epoch from xce.fence f where f.id = 1 for share;
    if v_epoch is distinct from p_epoch then
        raise exception 'epoch % is over, now %', p_epoch, v_epoch using errcode = 'RZ410';
    end if;
end;
$$;
