select a.ordinal, a.answer from xce.cancel_requests(%(calls)s::jsonb) a
