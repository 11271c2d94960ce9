-- R8: room was given under an epoch that had been reached, and under no older one once a newer ruled.
select 'R8' as rule,
       format('%s %s', h.lifecycle, h.row_id) as row,
       format('%s under epoch %s, the newest is %s', h.event, coalesce(h.epoch::text, 'none'), f.epoch) as what
  from xce.history h
 cross join xce.fence f
 where h.lifecycle in ('start', 'grow')
   and h.event in ('place', 'commit')
   and (h.epoch is null or h.epoch > f.epoch)
union all
select 'R8', format('epoch %s', a.epoch), format('gave room at %s, after epoch %s had begun', a.last_at, b.epoch)
  from (select h.epoch, max(h.at) as last_at, max(h.xid) as last_xid
          from xce.history h where h.event in ('place', 'commit') group by h.epoch) a
  join (select h.epoch, min(h.at) as first_at
          from xce.history h where h.event in ('place', 'commit') group by h.epoch) b
    on b.epoch > a.epoch and b.first_at < a.last_at
 order by 2
