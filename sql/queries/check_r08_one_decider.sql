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
-- By transaction, not by the clock, which may be set back. A transaction of an older epoch shares the
-- fence's lock, so a newer epoch's first one gets its id after it.
select 'R8', format('epoch %s', a.epoch), format('gave room in transaction %s, after epoch %s had begun', a.last_xid, b.epoch)
  from (select h.era, h.epoch, max(h.xid) as last_xid
          from xce.history h where h.event in ('place', 'commit') group by h.era, h.epoch) a
  join (select h.era, h.epoch, min(h.xid) as first_xid
          from xce.history h where h.event in ('place', 'commit') group by h.era, h.epoch) b
    on b.era = a.era and b.epoch > a.epoch and b.first_xid < a.last_xid
 order by 2
