-- Purpose: change settings together, unless they are unknown or would not work together; the one
--   place that knows what nonsense is. Answers why not, or null when it is done. What has the value
--   already leaves no trace.
-- Locks: setting, by name. Raises: nothing.
create or replace function xce.write_settings(p_changes jsonb, p_user bigint, p_now timestamptz default null)
returns text
language plpgsql
as $$
declare
    v_refused text;
begin
    perform from xce.setting s order by s.name for no key update;
    v_refused := xce.refuse_settings(p_changes);
    if v_refused is not null then
        return v_refused;
    end if;
    with changed as (
        update xce.setting s
           set value = c.value::numeric
          from xce.setting b, jsonb_each_text(p_changes) as c
         where s.name = c.key
           and b.name = s.name
           and s.value <> c.value::numeric
        returning s.name, b.value as value_before, s.value
    )
    insert into xce.setting_change (name, at, value_before, value, user_id)
    select c.name, coalesce(p_now, clock_timestamp()), c.value_before, c.value, p_user
      from changed c
     order by c.name;
    return null;
end;
$$;

-- Purpose: why settings would make no sense after these changes, or null. Locks: none.
create or replace function xce.refuse_settings(p_changes jsonb)
returns text
language sql
stable
as $$
    with after as (
        select s.name, s.unit, coalesce((p_changes ->> s.name)::numeric, s.value) as value,
               -- A poll is the guarantee where a bell was lost, so it has to come; a clock tick is not nothing.
               case when s.name in ('heartbeat_s', 'lease_s', 'poll_s', 'worker_poll_s') then 3600
                    when s.name = 'silent_s' then 604800
                    when s.name = 'fence_s' then 31536000
                    when s.unit = 'days' then 100000
                    when s.unit = '%' then 100
                    else 100000000 end as most,
               case s.unit when 's' then 0.01 else 0 end as least
          from xce.setting s
    ),
    fault (what, place) as (
        select format('there is no setting %s; there are %s', c.key, (select string_agg(a.name, ', ' order by a.name) from after a)), 1
          from jsonb_object_keys(p_changes) as c (key)
         where c.key not in (select a.name from after a)
         union all
        select format(case a.least when 0 then '%s must be above 0' else '%s must be at least %s' end, a.name, a.least), 2
          from after a
         where a.value <= 0
            or a.value < a.least
         union all
        select format('%s must be at most %s', a.name, a.most), 3
          from after a
         where a.value > a.most
         union all
        select format('heartbeat_s %s is more than a third of %s %s: %s', trim_scale(h.value), s.name, trim_scale(s.value),
                      case s.name when 'silent_s' then 'one lost exchange could make a host lost'
                                  else 'keepers could stop their tasks between two exchanges' end), 4
          from after h, after s
         where h.name = 'heartbeat_s'
           and s.name in ('silent_s', 'fence_s')
           and h.value > s.value / 3
    )
    select string_agg(f.what, '; ' order by f.place, f.what) from fault f
$$;

-- Purpose: an operator's change of one setting over REST. Locks: setting, by name. Raises: nothing.
create or replace function xce.change_setting(p_call jsonb, p_now timestamptz default null)
returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_name text := p_call ->> 'name';
    v_refused text;
begin
    if not (p_call ->> 'is_operator')::boolean then
        return xce.refusal('not_allowed', 'only an operator may change a setting; ask one', '{}');
    end if;
    if not exists (select from xce.setting s where s.name = v_name) then
        return xce.refusal('not_found', 'there is no such setting; GET /v1/settings lists them', '{}');
    end if;
    v_refused := xce.write_settings(jsonb_build_object(v_name, p_call -> 'value'), (p_call ->> 'user_id')::bigint, p_now);
    if v_refused is not null then
        return xce.refusal('invalid', v_refused, jsonb_build_object('path', '$.value'));
    end if;
    -- Each worker learns it with its next exchange; a shorter silent time must not overtake that.
    return xce.acceptance(200, 0, array['xce_plan', 'xce_watch']
                                  || array(select 'xce_host_' || h.id from xce.host h where h.state <> 'removed' order by h.id));
end;
$$;
