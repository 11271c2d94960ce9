select xce.wish_host(%(call)s::jsonb)
