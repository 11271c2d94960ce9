-- Purpose: remember when tokens were last used, so many seconds ago each. Within a minute of what is
--   known already nothing is written: it is there to find tokens that nobody needs any more.
-- Locks: token (ascending). Raises: nothing of its own.
create or replace function xce.touch_tokens(p_ids bigint[], p_ages_s double precision[])
returns void
language sql
security definer
set search_path = pg_catalog, pg_temp
as $$
    with used as (
        select t.id, clock_timestamp() - make_interval(secs => u.age_s) as at
          from unnest(p_ids, p_ages_s) as u (id, age_s)
          join xce.token t on t.id = u.id
         where u.age_s >= 0
           and coalesce(t.last_used_at, '-infinity') < clock_timestamp() - make_interval(secs => u.age_s + 60)
         order by t.id
           for no key update of t
    )
    update xce.token t
       set last_used_at = u.at
      from used u
     where t.id = u.id
$$;
