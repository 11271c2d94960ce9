-- Sums of the pieces in whole microseconds. Added up by size first, because a product with memory may not
-- fit a bigint. What a task used is spread evenly over its range: up to each cut the floor of its share,
-- so that the pieces add up to the whole to the microsecond.
measured as (
    select p.part, p.cpus, p.mem_mib, p.gpus, p.mem_peak_mib,
           (extract(epoch from p.until_here - p.since_here) * 1000000)::bigint as us,
           case when p.cpu_used_us is null or (p.since_here = p.since and p.until_here = p.until) then p.cpu_used_us
                else (div(p.cpu_used_us * extract(epoch from p.until_here - p.since), extract(epoch from p.until - p.since))
                    - div(p.cpu_used_us * extract(epoch from p.since_here - p.since), extract(epoch from p.until - p.since))
                     )::bigint end as cpu_used_us
      from pieces p
),
by_size as (
    select m.part, m.cpus, m.mem_mib, m.gpus, sum(m.us) as us, sum(m.cpu_used_us) as cpu_used_us,
           max(m.mem_peak_mib) as mem_peak_mib
      from measured m
     group by m.part, m.cpus, m.mem_mib, m.gpus
),
named as (
    select s.part, s.us, s.cpus, s.mem_mib, s.gpus, s.cpu_used_us, s.mem_peak_mib,
           case %(by)s::text
           when 'job' then s.part::text
           when 'owner' then u.name
           when 'project' then p.name
           when 'queue' then q.name
           when 'host' then h.name
           when 'day' then to_char((%(edges)s::timestamptz[])[s.part] at time zone %(tz)s::text, 'YYYY-MM-DD')
           when 'hour' then to_char((%(edges)s::timestamptz[])[s.part] at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
           end as key
      from by_size s
      left join xce.user_account u on %(by)s::text = 'owner' and u.id = s.part
      left join xce.project p on %(by)s::text = 'project' and p.id = s.part
      left join xce.queue q on %(by)s::text = 'queue' and q.id = s.part
      left join xce.host h on %(by)s::text = 'host' and h.id = s.part
)
select n.key,
       sum(n.us) as task_us,
       sum(n.us * n.cpus) as cpu_us,
       sum(n.us * n.mem_mib) as mem_mib_us,
       sum(n.us * n.gpus) as gpu_us,
       coalesce(sum(n.cpu_used_us), 0) as cpu_used_us,
       max(n.mem_peak_mib) as mem_peak_mib
  from named n
 group by n.key
 order by case when %(by)s::text in ('job', 'day', 'hour') then min(n.part) end, n.key
