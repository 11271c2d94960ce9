select xce.submit_job(%(call)s::jsonb)
