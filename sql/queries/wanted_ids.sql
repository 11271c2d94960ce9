-- The rows asked for by id.
select unnest(%(ids)s::bigint[]) as id
