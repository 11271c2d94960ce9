-- Purpose: turn a shrink as asked (tasks, hosts or count) into the indices it names, or refuse it.
-- Locks: none; the caller holds the job's lock.
create or replace function xce.judge_shrink(p_job xce.job, p_call jsonb)
returns table (refusal jsonb, ask jsonb)
language plpgsql
stable
as $$
declare
    v_victims integer[];
    v_is_leaving boolean;
begin
    if jsonb_typeof(p_call -> 'tasks') = 'array' then
        select v.refusal, v.victims into refusal, v_victims
          from xce.victims_by_task(p_job, array(select x::integer from jsonb_array_elements_text(p_call -> 'tasks') as x)) v;
    elsif jsonb_typeof(p_call -> 'hosts') = 'array' then
        select v.refusal, v.victims into refusal, v_victims
          from xce.victims_by_host(p_job, array(select jsonb_array_elements_text(p_call -> 'hosts'))) v;
    else
        -- One more than there are candidates is enough for the bound below to refuse it.
        v_victims := array(select c.index from xce.shrink_candidates(p_job) c
                            order by c.rank limit (p_call ->> 'count')::bigint);
    end if;
    if refusal is null then
        v_is_leaving := v_victims = '{}' and exists (select from xce.task t where t.job_id = p_job.id and t.is_open and t.index <> 0);
        refusal := xce.refuse_victims(p_job, case when v_is_leaving then 0
                                                  else greatest(cardinality(v_victims), (p_call ->> 'count')::integer) end);
    end if;
    if refusal is null then
        ask := jsonb_build_object(
            'kind', 'shrink', 'min', cardinality(v_victims), 'max', cardinality(v_victims),
            'task_indices', to_jsonb(v_victims), 'deadline_s', p_call -> 'deadline_s', 'grace_s', p_call -> 'grace_s',
            'hosts', (select jsonb_agg(distinct h.name order by h.name)
                        from xce.task t
                        join xce.host h on h.id = t.host_id
                       where t.job_id = p_job.id and t.attempt = p_job.attempt and t.index = any (v_victims)));
    end if;
    return next;
end;
$$;

-- Purpose: PROTOCOL 9: staying members minus the new victims must not be below min_tasks.
-- Locks: none.
create or replace function xce.refuse_victims(p_job xce.job, p_count integer)
returns jsonb
language plpgsql
stable
as $$
declare
    v_members integer := xce.staying_members(p_job.id);
begin
    if p_count = 0 then
        return xce.refusal('nothing_to_release', 'every task that could be released is leaving already', '{}');
    end if;
    if v_members - p_count >= p_job.min_tasks then
        return null;
    end if;
    return xce.refusal('below_min',
                       format('the job has %s tasks that stay; without %s it is below its minimum of %s',
                              v_members, p_count, p_job.min_tasks),
                       jsonb_build_object('min_tasks', p_job.min_tasks, 'tasks', v_members, 'asked', p_count,
                                          'releasable', greatest(0, v_members - p_job.min_tasks)));
end;
$$;

-- Purpose: the victims of a shrink that names tasks; the first fault refuses it as a whole.
-- Locks: none.
create or replace function xce.victims_by_task(p_job xce.job, p_indices integer[])
returns table (refusal jsonb, victims integer[])
language plpgsql
stable
as $$
declare
    v_unknown integer[];
    v_leaving integer[];
begin
    victims := array(select distinct i from unnest(p_indices) as i order by i);
    if 0 = any (victims) then
        refusal := xce.refusal('head_task', 'task 0 is the head; no shrink may name it', '{"task": 0}');
    end if;
    select array_agg(i order by i) filter (where t.id is null or not t.is_open),
           array_agg(i order by i) filter (where t.is_open and (t.shrink_id is not null or not t.is_member))
      into v_unknown, v_leaving
      from unnest(victims) as i
      left join xce.task t on t.job_id = p_job.id and t.attempt = p_job.attempt and t.index = i;
    if v_unknown is not null then
        refusal := xce.refusal('unknown_task',
                               format('the job has no task %s', array_to_string(v_unknown, ', ')),
                               jsonb_build_object('tasks', to_jsonb(v_unknown)));
    elsif refusal is null and v_leaving is not null then
        refusal := xce.refusal('task_leaving',
                               format('task %s is leaving already', array_to_string(v_leaving, ', ')),
                               jsonb_build_object('tasks', to_jsonb(v_leaving)));
    end if;
    return next;
end;
$$;

-- Purpose: the victims of a shrink that names hosts: every task of the job there that is not leaving.
--   A host where the head is cannot be named. Locks: none.
create or replace function xce.victims_by_host(p_job xce.job, p_hosts text[])
returns table (refusal jsonb, victims integer[])
language plpgsql
stable
as $$
declare
    v_unknown text[];
begin
    select array_agg(distinct n order by n) into v_unknown
      from unnest(p_hosts) as n
     where not exists (select from xce.task t
                         join xce.host h on h.id = t.host_id
                        where t.job_id = p_job.id and t.is_open and h.name = n);
    victims := array(select t.index
                       from xce.task t
                       join xce.host h on h.id = t.host_id
                      where t.job_id = p_job.id and t.is_open and t.is_member and t.shrink_id is null and h.name = any (p_hosts)
                      order by t.index);
    if v_unknown is not null then
        refusal := xce.refusal('host_not_in_allocation',
                               format('the job has no task on %s', array_to_string(v_unknown, ', ')),
                               jsonb_build_object('hosts', to_jsonb(v_unknown)));
    elsif 0 = any (victims) then
        refusal := xce.refusal('head_task',
                               'the head task is on a host that you named; name the other tasks there instead',
                               jsonb_build_object('task', 0, 'other_tasks', to_jsonb(array_remove(victims, 0))));
    end if;
    return next;
end;
$$;

-- Purpose: the tasks a shrink by count may take, in the order it takes them (DESIGN §6): assigned,
--   starting, on draining hosts, then what empties whole hosts first (the host with the fewest staying
--   tasks, the head's own last), then the youngest; ties by index, descending. Never the head.
-- Locks: none.
create or replace function xce.shrink_candidates(p_job xce.job)
returns table (index integer, rank bigint)
language sql
stable
as $$
    with staying as (
        select t.id, t.index, t.state, t.host_id, t.assigned_at, h.drain_wanted,
               count(*) over (partition by t.host_id) as on_host,
               bool_or(t.index = 0) over (partition by t.host_id) as is_head_host
          from xce.task t
          join xce.host h on h.id = t.host_id
         where t.job_id = p_job.id
           and t.is_open
           and t.is_member
           and t.shrink_id is null
    )
    select s.index,
           row_number() over (
               order by case s.state when 'assigned' then 0 when 'starting' then 1 else 2 end,
                        not s.drain_wanted, s.is_head_host, s.on_host, s.host_id desc, s.assigned_at desc, s.index desc
           )
      from staying s
     where s.index <> 0
$$;
