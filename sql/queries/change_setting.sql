select xce.change_setting(%(call)s::jsonb)
