select xce.remove_host(%(call)s::jsonb)
