-- Purpose: apply the leader's decisions, many in one transaction, each judged again on its own; the
--   part that still holds is accepted and the rest refused with a code. p_plan: see the store's
--   apply in app/db/pg_store.py.
-- Locks: fence, job, request, task, host, each ascending. Raises: RZ410.
create or replace function xce.apply_plan(p_epoch bigint, p_plan jsonb, p_now timestamptz default null)
returns table (ordinal integer, accepted boolean, code text, rings text[])
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    v_decisions jsonb := p_plan -> 'decisions';
    v_now timestamptz;
    v_has record;
    v_jobs bigint[];
    v_out xce.effects := row('{}', '{}', '{}')::xce.effects;
    v_refused jsonb := '{}';
    v_one record;
    v_rings text[];
begin
    perform xce.pass_fence(p_epoch);
    select array_agg(d.request_id) as requests,
           coalesce(bool_or(d."do" in ('place', 'commit')), false) as giving,
           coalesce(bool_or(d."do" in ('stop', 'cancel')), false) as taking,
           coalesce(bool_or(d."do" not in ('place', 'commit')), false) as other
      into v_has
      from jsonb_to_recordset(v_decisions) as d ("do" text, request_id bigint);
    v_jobs := array(select distinct r.job_id from xce.resize_request r where r.id = any (v_has.requests));
    perform from xce.job j where j.id = any (v_jobs) order by j.id for no key update;
    perform from xce.resize_request r where r.job_id = any (v_jobs) and r.is_open order by r.id for no key update;
    v_now := coalesce(p_now, clock_timestamp());

    if v_has.other then
        select x.refused, x.effects into v_one from xce.apply_giving_back(v_decisions, p_epoch, v_now) x;
        v_refused := v_one.refused;
        v_out := v_one.effects;
    end if;
    -- Only what was taken back may complete something, giving room has no consequences. It is settled
    -- first, because it may free more hosts, and those are locked once, with the ones that are given.
    if v_has.taking then
        v_out := xce.join_effects(v_out, xce.settle_jobs(v_jobs, v_now));
    end if;
    if v_has.giving then
        select x.refused, x.effects into v_one from xce.apply_places(v_decisions, v_out, p_epoch, v_now) x;
        v_refused := v_refused || v_one.refused;
        v_out := v_one.effects;
    end if;
    v_rings := xce.free_hosts(v_out, v_now);

    insert into xce.tick (epoch, at, snapshot, policy, decisions, refused, era)
    select p_epoch, v_now, (p_plan ->> 'snapshot')::pg_snapshot, p_plan -> 'policy', v_decisions,
           (select count(*) from jsonb_object_keys(v_refused)), xce.era()
     where p_plan ->> 'snapshot' is not null;
    return query
    select d.ordinality::integer - 1, not v_refused ? (d.ordinality - 1)::text,
           v_refused ->> (d.ordinality - 1)::text, v_rings
      from jsonb_array_elements(v_decisions) with ordinality as d
     order by d.ordinality;
end;
$$;
