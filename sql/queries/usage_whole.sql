-- A report by something that ranges do not cross: each is one piece.
pieces as (
    select c.job_id, c.host_id, c.cpus, c.mem_mib, c.gpus, c.cpu_used_us, c.mem_peak_mib, c.since, c.until,
           c.since_here, c.until_here,
           case %(by)s::text
           when 'job' then c.job_id
           when 'owner' then j.owner_id
           when 'project' then j.project_id
           when 'queue' then j.queue_id
           when 'host' then c.host_id
           end as part
      from clipped c
      left join xce.job j on %(by)s::text in ('owner', 'project', 'queue') and j.id = c.job_id
     where c.since_here < c.until_here
),
