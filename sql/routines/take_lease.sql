-- Purpose: take the lease when it is free or expired, renew it when it is one's own; on the
--   database's clock alone. A new holder raises the epoch, which waits for writers of the old one.
--   Nobody leads a database that was restored and waits.
-- Locks: lease, fence. Raises: nothing of its own.
create or replace function xce.take_lease(p_holder text)
returns table (is_leader boolean, epoch bigint, expires_in_s numeric)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_lease xce.lease;
    v_lease_s numeric := xce.setting_value('lease_s');
    v_now timestamptz;
begin
    select l.* into v_lease from xce.lease l where l.id = 1 for no key update;
    v_now := clock_timestamp();
    is_leader := (v_lease.expires_at <= v_now or v_lease.holder = p_holder) and not xce.is_paused();
    -- An expired lease is a new reign even for the same holder: others may have judged meanwhile.
    if is_leader and v_lease.expires_at <= v_now then
        update xce.fence f set epoch = f.epoch + 1 where f.id = 1;
    end if;
    if is_leader then
        update xce.lease l
           set holder = p_holder,
               expires_at = clock_timestamp() + xce.seconds(v_lease_s)
         where l.id = 1;
        expires_in_s := v_lease_s;
    else
        expires_in_s := greatest(0, extract(epoch from greatest(v_lease.expires_at, v_now) - v_now));
    end if;
    select f.epoch into take_lease.epoch from xce.fence f where f.id = 1;
    return next;
end;
$$;

-- Purpose: give the lease back at an orderly stop, so that a successor need not wait for its expiry.
-- Locks: lease. Raises: nothing of its own.
create or replace function xce.drop_lease(p_holder text)
returns void
language sql
security definer
set search_path = pg_catalog, pg_temp
as $$
    update xce.lease l
       set holder = null,
           expires_at = '-infinity'
     where l.id = 1
       and l.holder = p_holder
$$;
