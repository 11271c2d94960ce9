select xce.put_host(%(call)s::jsonb)
