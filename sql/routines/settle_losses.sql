-- Purpose: `on_host_loss` (PROTOCOL 23) for running jobs of which tasks were lost with their host: the
--   job is requeued, goes on with the survivors, or ends. What the job's own tasks have decided meanwhile
--   comes first, so a job that is stopping, or ends by itself, only forgets the loss.
-- Locks: request, task; the caller holds the jobs' locks. Raises: RZ422.
create or replace function xce.settle_losses(p_jobs bigint[], p_now timestamptz)
returns xce.effects
language plpgsql
as $$
declare
    v_out xce.effects := row('{}', '{}', '{}')::xce.effects;
    v_loss record;
    v_reason text;
begin
    for v_loss in select l.* from xce.losses(p_jobs) l where l.verdict <> 'wait' order by l.job_id
    loop
        update xce.task t set loss_due = false where t.job_id = v_loss.job_id and t.loss_due;
        v_reason := 'host_lost: ' || v_loss.hosts;
        case v_loss.verdict
            when 'requeue' then
                v_out := xce.join_effects(v_out, xce.stop_job(v_loss.job_id, 'requeue', 'controller', 'host_lost',
                                                              v_reason, p_now));
            when 'exit' then
                v_out := xce.join_effects(v_out, xce.stop_job(v_loss.job_id, 'stop', 'controller', 'host_lost',
                                                              v_reason, p_now));
            when 'shrink' then
                perform xce.advance_job(v_loss.job_id, 'amend', 'controller', p_now,
                                        format('%s; it goes on with %s tasks', v_reason, v_loss.members));
            else null;
        end case;
    end loop;
    return v_out;
end;
$$;

-- Purpose: jobs of which a loss was not acted on, and what has to become of them. `shrink` only where the
--   head lives and enough members stay without those of committed grows, which may be rolled back; where
--   these would make it enough, it waits until they are decided. Members on hosts that are lost, but not
--   their tasks yet, count: their own loss decides anew. `none` where the job ends in another way.
-- Locks: none.
create or replace function xce.losses(p_jobs bigint[])
returns table (job_id bigint, hosts text, members bigint, verdict text)
language sql
stable
as $$
    select j.id, l.hosts, m.members,
           case when j.state <> 'running' or xce.ends_by_itself(j) then 'none'
                when j.on_host_loss <> 'shrink' then j.on_host_loss
                when not m.has_head then 'requeue'
                when m.firm >= j.min_tasks then 'shrink'
                when m.members >= j.min_tasks then 'wait'
                else 'requeue' end
      from (select t.job_id, string_agg(distinct h.name, ', ' order by h.name) as hosts
              from xce.task t
              join xce.host h on h.id = t.host_id
             where t.job_id = any (p_jobs)
               and t.loss_due
             group by t.job_id) l
      join xce.job j on j.id = l.job_id
     cross join lateral (
           select count(*) as members,
                  count(*) filter (where not (r.kind = 'grow' and r.state = 'committed')) as firm,
                  coalesce(bool_or(t.index = 0), false) as has_head
             from xce.task t
             join xce.resize_request r on r.id = t.request_id
            where t.job_id = j.id
              and t.is_open
              and t.is_member
           ) m
$$;

-- Purpose: whether its head or a failed task ends a job, and no loss. Locks: none.
create or replace function xce.ends_by_itself(p_job xce.job)
returns boolean
language sql
stable
as $$
    select (p_job).on_task_failure = 'end_job' and xce.failed_index((p_job).id, (p_job).attempt) is not null
        or (p_job).ends_when = 'head' and exists (
           select from xce.task t
            where t.job_id = (p_job).id and t.attempt = (p_job).attempt and t.index = 0
              and not t.is_open and not t.loss_due)
$$;
