-- R10: each row's history is one unbroken chain from `none` to what the row is now; nothing old has
-- changed it in between, and nothing changed it without leaving a trace.
with moves as (
    select h.lifecycle, h.row_id, h.source, h.target,
           lag(h.target, 1, 'none') over w as came_from,
           row_number() over (partition by h.lifecycle, h.row_id order by h.version desc) = 1 as is_last
      from xce.history h
    window w as (partition by h.lifecycle, h.row_id order by h.version)
),
living as (
    select 'task' as lifecycle, t.id, t.state from xce.task t
    union all
    select 'job', j.id, j.state from xce.job j
    union all
    select 'host', h.id, h.state from xce.host h
    union all
    select r.kind, r.id, r.state from xce.resize_request r
)
select 'R10' as rule,
       format('%s %s', l.lifecycle, l.id) as row,
       format('is %s, its history ends in %s', l.state, coalesce(m.target, 'nothing')) as what
  from living l
  left join moves m on m.lifecycle = l.lifecycle and m.row_id = l.id and m.is_last
 where m.target is distinct from l.state
union all
select 'R10', format('%s %s', m.lifecycle, m.row_id), format('history leaves %s, but it was %s', m.source, m.came_from)
  from moves m
 where m.source <> m.came_from
 order by 2
