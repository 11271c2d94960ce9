-- Purpose: two outcomes as one. Locks: none.
create or replace function xce.join_effects(p_left xce.effects, p_right xce.effects)
returns xce.effects
language sql
immutable
as $$
    select row(
        coalesce((p_left).ended, '{}') || coalesce((p_right).ended, '{}'),
        coalesce((p_left).unheld, '{}') || coalesce((p_right).unheld, '{}'),
        coalesce((p_left).rings, '{}') || coalesce((p_right).rings, '{}')
    )::xce.effects
$$;

-- Purpose: the channels to ring, each once, in order. Locks: none.
create or replace function xce.distinct_rings(p_rings text[])
returns text[]
language sql
immutable
as $$
    select coalesce(array_agg(distinct r order by r), '{}') from unnest(p_rings) as r
$$;
