-- R5: each task has one allocation range, from its `assign` to the edge that ended it, so that the
-- sum of the ranges is the history of sizes. (Overlap is forbidden by the table itself.)
select 'R5' as rule,
       format('job %s task %s', t.job_id, t.index) as row,
       format('range %s, history says %s to %s', a.during, assigned.at, ended.at) as what
  from xce.task t
  left join xce.allocation a on a.task_id = t.id
  left join xce.history assigned on assigned.lifecycle = 'task' and assigned.row_id = t.id and assigned.event = 'assign'
  left join lateral (
       select coalesce((h.detail ->> 'charged_until')::timestamptz, h.at) as at
         from xce.history h
        where h.lifecycle = 'task'
          and h.row_id = t.id
          and h.target = 'ended'
       ) ended on true
 where a.task_id is null
    or assigned.at is null
    or case when isempty(a.during) then ended.at is null or ended.at > assigned.at
            else lower(a.during) <> assigned.at
              or upper(a.during) is distinct from case when ended.at is not null then greatest(assigned.at, ended.at) end
              or t.is_open <> upper_inf(a.during) end
 order by t.job_id, t.attempt, t.index
