-- Expand: what acts on lost hosts.

-- Its loss asks for the job's `on_host_loss`, which has not acted on it yet.
alter table xce.task add column loss_due boolean not null default false;
create index task_loss_ix on xce.task (job_id) where loss_due;

-- When a leader saw the clock of this server jump. Fences count from the last one at the earliest: before
-- it nobody knows how much time has really passed.
create table xce.clock_jump (
    id bigint generated always as identity,
    at timestamptz not null,
    expected_at timestamptz not null,
    constraint clock_jump_pk primary key (id)
);

insert into xce.setting (name, value, unit, why)
values ('mass_loss_percent', 30, '%', 'when three hosts or more and a larger share fall silent together, nobody is judged');
