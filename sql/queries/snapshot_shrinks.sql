-- Pending shrinks with the members they name: for each host assigned ones and others, and of all of
-- them how many run and how many count among the job's firm tasks.
select r.id,
       r.version,
       r.job_id,
       coalesce(n.hosts, '{}'),
       coalesce(n.assigned, '{}'),
       coalesce(n.started, '{}'),
       coalesce(n.running, 0),
       coalesce(n.firm, 0),
       r.reason,
       r.deadline_at
  from xce.resize_request r
  left join lateral (
       select array_agg(x.host_id order by x.host_id) as hosts,
              array_agg(x.assigned order by x.host_id) as assigned,
              array_agg(x.started order by x.host_id) as started,
              sum(x.running)::bigint as running,
              sum(x.firm)::bigint as firm
         from (select t.host_id,
                      count(*) filter (where t.state = 'assigned') as assigned,
                      count(*) filter (where t.state <> 'assigned') as started,
                      count(*) filter (where t.state = 'running') as running,
                      count(*) filter (where t.state = 'running' and h.state not in ('lost', 'joining')
                                         and not (g.kind = 'grow' and g.state = 'committed')) as firm
                 from xce.task t
                 join xce.host h on h.id = t.host_id
                 join xce.resize_request g on g.id = t.request_id
                where t.shrink_id = r.id
                  and t.is_open
                  and t.is_member
                group by t.host_id) x
       ) n on true
 where r.is_open
   and r.kind = 'shrink'
   and r.state = 'pending'
 order by r.id
