select xce.create_token(%(call)s::jsonb)
