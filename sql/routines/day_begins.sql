-- Purpose: the first instant of a day in a time zone. Where clocks go back over midnight it comes twice
--   and PostgreSQL takes the second; where they go forward over it the day begins after the gap.
-- Locks: none. Raises: 22023 for a time zone that does not exist.
create or replace function xce.day_begins(p_day date, p_tz text)
returns timestamptz
language sql
stable
as $$
    select min(c.at)
      from unnest(array[interval '0', interval '30 minutes', interval '1 hour', interval '2 hours']) as b (back)
     cross join lateral (select (p_day::timestamp at time zone p_tz) - b.back) as c (at)
     where b.back = interval '0'
        or (c.at at time zone p_tz)::date = p_day
$$;
