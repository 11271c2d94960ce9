-- What a report covers: from when (null: from the first range on) until when, which is never later than
-- now; and where days or hours begin in its time zone, one before its first moment and one after its last.
-- Half and quarter hours are tried too, because not all zones lie whole hours apart.
with asked as (
    select statement_timestamp() as as_of,
           coalesce(%(from_at)s::timestamptz, xce.day_begins(%(from_day)s::date, %(tz)s::text)) as from_at,
           coalesce(%(to_at)s::timestamptz, xce.day_begins(%(to_day)s::date, %(tz)s::text), statement_timestamp()) as to_at
),
clipped as (
    select a.as_of,
           a.from_at >= a.to_at as is_backwards,
           case when a.from_at is null and %(by)s::text in ('day', 'hour')
                then (select min(lower(r.during)) from xce.allocation r where not isempty(r.during))
                else a.from_at end as from_at,
           greatest(least(a.to_at, a.as_of), a.from_at) as to_at
      from asked a
),
judged as (
    select c.as_of, c.from_at, c.to_at, coalesce(c.is_backwards, false) as is_backwards,
           coalesce(case %(by)s::text when 'day' then c.to_at - c.from_at > interval '40000 days'
                                      when 'hour' then c.to_at - c.from_at > interval '400 days' end, false) as is_too_long
      from clipped c
)
select j.as_of, j.from_at, j.to_at, j.is_backwards, j.is_too_long,
       case when j.is_too_long then null
            when %(by)s::text = 'day' then array(
                select distinct xce.day_begins(d.day::date, %(tz)s::text)
                  from generate_series((j.from_at at time zone %(tz)s::text)::date::timestamp,
                                       (j.to_at at time zone %(tz)s::text)::date + interval '1 day', interval '1 day') as d (day)
                 order by 1)
            when %(by)s::text = 'hour' then array(
                select q.at
                  from generate_series(date_bin(interval '15 minutes', j.from_at, timestamptz 'epoch') - interval '2 hours',
                                       j.to_at + interval '2 hours', interval '15 minutes') as q (at)
                 where date_trunc('hour', q.at at time zone %(tz)s::text) = q.at at time zone %(tz)s::text
                 order by 1) end as edges
  from judged j
