-- Kill every job that has tasks on these hosts, because they stop together; answers the channels to
-- ring. Jobs without tasks stay pending.
with asked as (
    select jsonb_agg(
               jsonb_build_object(
                   'user_id', j.owner_id, 'is_operator', true, 'key', null, 'origin', 'operator',
                   'verb', 'kill', 'job_id', j.id, 'if_match', null, 'reason', 'shutdown',
                   'grace_s', least(j.grace_s, %(grace_s)s::float8::numeric)
               )
               order by j.id
           ) as calls
      from xce.job j
     where j.is_open
       and exists (select
                     from xce.task t
                     join xce.host h on h.id = t.host_id
                    where t.job_id = j.id
                      and t.is_open
                      and h.name = any (%(hosts)s::text[]))
)
select distinct r.channel
  from asked a
       cross join lateral xce.command_jobs(a.calls) k
       cross join lateral jsonb_array_elements_text(k.answer -> 'rings') as r (channel)
 where a.calls is not null;
