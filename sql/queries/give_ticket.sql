-- A ticket for the port of a task's worker.
select xce.give_ticket(%(call)s::jsonb)
