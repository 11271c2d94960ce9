-- A report by days or hours, which cut ranges into pieces; `part` is the number of the edge before it.
pieces as (
    select c.job_id, c.host_id, c.cpus, c.mem_mib, c.gpus, c.cpu_used_us, c.mem_peak_mib, c.since, c.until,
           greatest(c.since_here, (%(edges)s::timestamptz[])[i.part]) as since_here,
           least(c.until_here, (%(edges)s::timestamptz[])[i.part + 1]) as until_here,
           i.part::bigint as part
      from clipped c
     cross join lateral generate_series(
           width_bucket(c.since_here, %(edges)s::timestamptz[]),
           width_bucket(c.until_here - interval '1 microsecond', %(edges)s::timestamptz[])
           ) as i (part)
     where c.since_here < c.until_here
),
