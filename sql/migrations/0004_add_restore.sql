-- Expand: a database that was restored from a backup waits until every host has reported and an operator
-- says so. What lives on the hosts meanwhile is listed, never stopped.
alter table xce.fence add column restored_at timestamptz;

create table xce.found_task (
    host_id bigint not null,
    job_id bigint not null,
    attempt integer not null,
    index integer not null,
    found_at timestamptz not null,
    constraint found_task_pk primary key (host_id, job_id, attempt, index),
    constraint found_task_host_fk foreign key (host_id) references xce.host (id)
);
