-- Purpose: the last lock on the door. No state may move, by whoever's hand, along an edge that the
--   tables printed from statemachines/ do not have. Knows nothing but those tables.
-- Argument: the lifecycle's name. Locks: none. Raises: RZ422.
create or replace function xce.guard_state()
returns trigger
language plpgsql
as $$
declare
    v_source text := case when tg_op = 'UPDATE' then old.state else 'none' end;
begin
    if not exists (
        select
          from xce.edge e
         where e.lifecycle = tg_argv[0]
           and e.source = v_source
           and e.target = new.state
           and not e.retired
    ) then
        raise exception '%: no edge leads from % to %', tg_argv[0], v_source, new.state
              using errcode = 'RZ422';
    end if;
    return new;
end;
$$;

create or replace trigger guard_insert
    before insert on xce.task
    for each row execute function xce.guard_state('task');
create or replace trigger guard_update
    before update of state on xce.task
    for each row when (old.state is distinct from new.state)
    execute function xce.guard_state('task');

create or replace trigger guard_insert
    before insert on xce.job
    for each row execute function xce.guard_state('job');
create or replace trigger guard_update
    before update of state on xce.job
    for each row when (old.state is distinct from new.state)
    execute function xce.guard_state('job');

create or replace trigger guard_insert
    before insert on xce.host
    for each row execute function xce.guard_state('host');
create or replace trigger guard_update
    before update of state on xce.host
    for each row when (old.state is distinct from new.state)
    execute function xce.guard_state('host');

create or replace trigger guard_insert_start
    before insert on xce.resize_request
    for each row when (new.kind = 'start')
    execute function xce.guard_state('start');
create or replace trigger guard_update_start
    before update of state on xce.resize_request
    for each row when (old.state is distinct from new.state and new.kind = 'start')
    execute function xce.guard_state('start');

create or replace trigger guard_insert_grow
    before insert on xce.resize_request
    for each row when (new.kind = 'grow')
    execute function xce.guard_state('grow');
create or replace trigger guard_update_grow
    before update of state on xce.resize_request
    for each row when (old.state is distinct from new.state and new.kind = 'grow')
    execute function xce.guard_state('grow');

create or replace trigger guard_insert_shrink
    before insert on xce.resize_request
    for each row when (new.kind = 'shrink')
    execute function xce.guard_state('shrink');
create or replace trigger guard_update_shrink
    before update of state on xce.resize_request
    for each row when (old.state is distinct from new.state and new.kind = 'shrink')
    execute function xce.guard_state('shrink');
