select a.ordinal, a.answer from xce.kill_jobs(%(calls)s::jsonb) a
