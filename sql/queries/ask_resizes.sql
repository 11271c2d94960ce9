select a.ordinal, a.answer from xce.ask_resizes(%(calls)s::jsonb) a
