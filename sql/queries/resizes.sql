-- Requests as they are; follows a CTE `wanted (id)`. The hosts are those of its tasks once there are
-- any, those of its hold while it is placed, and before that the ones that were asked for.
select r.id,
       r.job_id,
       r.attempt,
       r.parent_id,
       r.superseded_by,
       r.deadline_at,
       r.kind,
       r.state,
       nullif(concat_ws('; ', r.reason, xce.waits_for_host(lost.hosts, j.fence)), '') as reason,
       r.tasks_asked,
       r.tasks_min,
       r.tasks_max,
       r.tasks_granted,
       r.origin,
       u.name as requested_by,
       coalesce(own.hosts, held.hosts, r.hosts, '{}') as hosts,
       coalesce(own.indices, r.task_indices) as task_indices,
       r.created_at,
       r.committed_at,
       r.finished_at,
       r.generation
  from wanted w
  join xce.resize_request r on r.id = w.id
  join xce.job j on j.id = r.job_id
  left join xce.user_account u on u.id = r.requested_by
 cross join lateral (
       select array_agg(distinct h.name order by h.name) as hosts,
              array_agg(t.index order by t.index) as indices
         from xce.task t
         join xce.host h on h.id = t.host_id
        where t.request_id = r.id
       ) own
 cross join lateral (
       select array_agg(h.name order by h.name) as hosts
         from xce.hold l
         join xce.host h on h.id = l.host_id
        where l.request_id = r.id
       ) held
 cross join lateral (
       select string_agg(distinct h.name, ', ' order by h.name) as hosts
         from xce.task t
         join xce.host h on h.id = t.host_id
        where r.state in ('committed', 'stopping')
          and (t.request_id = r.id or t.shrink_id = r.id)
          and t.is_open
          and h.state = 'lost'
       ) lost
 where %(user_id)s::bigint is null
    or j.owner_id = %(user_id)s::bigint
 order by r.id
