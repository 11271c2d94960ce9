select a.ordinal, a.answer from xce.command_jobs(%(calls)s::jsonb) a
