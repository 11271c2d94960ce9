-- Expand: tickets for the workers' ports, and what those and the keeping of output go by. Workers of
-- before register without an address: their output is 503 until they are upgraded.

-- One use, 30 s, and nothing in it opens anything: the secret itself is never stored.
create table xce.ticket (
    sha256 bytea not null,
    purpose text not null,
    job_id bigint not null,
    attempt integer not null,
    task_index integer not null,
    host_id bigint not null,
    expires_at timestamptz not null,
    constraint ticket_pk primary key (sha256),
    constraint ticket_sha256_ck check (octet_length(sha256) = 32),
    constraint ticket_purpose_ck check (purpose in ('output')),
    constraint ticket_task_fk foreign key (job_id, attempt, task_index)
        references xce.task (job_id, attempt, index),
    constraint ticket_host_fk foreign key (host_id) references xce.host (id)
);
create index ticket_expires_ix on xce.ticket (expires_at);

alter table xce.incarnation
    add constraint incarnation_address_ck check (octet_length(address) between 3 and 300),
    add constraint incarnation_fingerprint_ck check (fingerprint ~ '^[0-9a-f]{64}$');

insert into xce.setting (name, value, unit, why)
values ('output_max_mib', 256, 'MiB', 'while its task runs, an output file above this loses its oldest part'),
       ('output_keep_mib', 64, 'MiB', 'so much of the end of an output file is kept after its task has ended');
