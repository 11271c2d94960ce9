select xce.revoke_token(%(call)s::jsonb)
