-- The ranges that touch a report's time and that the caller may see. Closed and open ones have an index
-- each; an open one counts up to now.
with allotted as (
    select a.job_id, a.host_id, a.cpus, a.mem_mib, a.gpus, a.cpu_used_us, a.mem_peak_mib,
           lower(a.during) as since, upper(a.during) as until
      from xce.allocation a
     where not upper_inf(a.during)
       and a.during && tstzrange(coalesce(%(from_at)s::timestamptz, '-infinity'), %(to_at)s::timestamptz)
       and (%(sees_only)s::bigint is null
            or a.job_id in (select j.id from xce.job j where j.owner_id = %(sees_only)s::bigint))
     union all
    select a.job_id, a.host_id, a.cpus, a.mem_mib, a.gpus, t.cpu_used_us, t.mem_peak_mib,
           lower(a.during), %(as_of)s::timestamptz
      from xce.allocation a
      join xce.task t on t.id = a.task_id
     where upper_inf(a.during)
       and lower(a.during) < %(to_at)s::timestamptz
       and (%(sees_only)s::bigint is null
            or a.job_id in (select j.id from xce.job j where j.owner_id = %(sees_only)s::bigint))
),
clipped as (
    select r.job_id, r.host_id, r.cpus, r.mem_mib, r.gpus, r.cpu_used_us, r.mem_peak_mib, r.since, r.until,
           greatest(r.since, %(from_at)s::timestamptz) as since_here,
           least(r.until, %(to_at)s::timestamptz) as until_here
      from allotted r
),
