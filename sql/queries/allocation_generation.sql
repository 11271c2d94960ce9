-- The moment asked for (null: now), and the generation the job's allocation had then.
select coalesce(%(as_of)s::timestamptz, statement_timestamp()) as as_of,
       case when %(as_of)s::timestamptz is null then j.generation
            else coalesce((
                select max(h.generation)
                  from xce.history h
                 where h.job_id = j.id
                   and h.at <= %(as_of)s::timestamptz
            ), 0)
       end as generation
  from xce.job j
 where j.id = %(job_id)s::bigint
