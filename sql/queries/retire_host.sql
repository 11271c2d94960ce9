select xce.retire_host(%(call)s::jsonb)
