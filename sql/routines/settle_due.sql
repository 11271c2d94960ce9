-- Purpose: the poll behind settle_jobs: look again at every job that has something to follow from.
-- Locks: fence, job (skipping busy ones), request, task, host. Raises: RZ410, RZ422.
create or replace function xce.settle_due(p_epoch bigint, p_now timestamptz default null)
returns text[]
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_now timestamptz;
    v_jobs bigint[];
begin
    perform xce.pass_fence(p_epoch);
    v_jobs := array(select j.id
                      from xce.job j
                     where j.is_open
                       and j.state <> 'pending'
                     order by j.id
                       for no key update skip locked);
    v_now := coalesce(p_now, clock_timestamp());
    return xce.free_hosts(xce.settle_jobs(v_jobs, v_now), v_now);
end;
$$;

-- Purpose: drop idempotency keys past their keeping. Locks: none but the rows'. Raises: nothing.
create or replace function xce.expire_rows(p_now timestamptz default null)
returns text[]
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    delete from xce.idempotency_key k
     where k.created_at < coalesce(p_now, clock_timestamp()) - make_interval(days => xce.setting_value('key_keep_days')::integer);
    return '{}';
end;
$$;
