-- How a job is launched; the environment is for its owner's eyes only.
select l.command,
       l.head_command,
       l.cwd,
       l.stdout,
       l.stderr,
       case when j.owner_id = %(user_id)s::bigint then l.env end as env
  from xce.job_launch l
  join xce.job j on j.id = l.job_id
 where l.job_id = %(job_id)s::bigint
