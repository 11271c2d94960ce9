-- A report by something that ranges do not cross: each is one piece.
pieces as (
    select c.job_id, c.host_id, c.cpus, c.mem_mib, c.gpus, c.cpu_used_us, c.mem_peak_mib, c.since, c.until,
           c.since_here, c.until_here,
           case when %(by)s::text = 'host' then c.host_id else c.job_id end as part
      from clipped c
     where c.since_here < c.until_here
),
