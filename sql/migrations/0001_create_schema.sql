-- Expand: the first schema. Tables only; what moves them is in routines/.
-- Every quantity that is added up is an integer; every time is timestamptz; every state is text
-- with a foreign key to the tables printed from statemachines/.

create schema if not exists xce;
create extension if not exists btree_gist with schema xce;

-- 1. Lifecycles ------------------------------------------------------------------------------

create table xce.state (
    lifecycle text not null,
    state text not null,
    waits_on text not null,
    holds_capacity boolean not null,
    is_terminal boolean not null,
    why text not null,
    retired boolean not null default false,
    constraint state_pk primary key (lifecycle, state)
);

create table xce.edge (
    lifecycle text not null,
    source text not null,
    event text not null,
    target text not null,
    actors text[] not null,
    why text not null,
    retired boolean not null default false,
    constraint edge_pk primary key (lifecycle, source, event, target),
    constraint edge_source_fk foreign key (lifecycle, source) references xce.state (lifecycle, state),
    constraint edge_target_fk foreign key (lifecycle, target) references xce.state (lifecycle, state)
);
create unique index edge_live_uq on xce.edge (lifecycle, source, event) where not retired;

-- 2. Settings, lease, fence --------------------------------------------------------------------

create table xce.setting (
    name text not null,
    value numeric not null,
    unit text not null,
    why text not null,
    constraint setting_pk primary key (name)
);
insert into xce.setting (name, value, unit, why)
values ('heartbeat_s', 5, 's', 'a worker exchanges with the database at least this often'),
       ('silent_s', 30, 's', 'a host silent for so long is lost'),
       ('fence_s', 300, 's', 'a keeper without an accepted exchange for so long stops its tasks'),
       ('lease_s', 5, 's', 'a leader that did not renew for so long is no leader'),
       ('poll_s', 2, 's', 'the scheduler looks at least this often'),
       ('worker_poll_s', 5, 's', 'a worker looks at least this often'),
       ('key_keep_days', 7, 'days', 'idempotency keys are kept for so long'),
       ('history_keep_days', 400, 'days', 'history is kept for so long'),
       ('output_keep_days', 7, 'days', 'output of ended tasks is kept for so long');

create table xce.lease (
    id integer not null default 1,
    holder text,
    expires_at timestamptz not null default '-infinity',
    constraint lease_pk primary key (id),
    constraint lease_single_ck check (id = 1)
);
insert into xce.lease (id) values (1);

create table xce.fence (
    id integer not null default 1,
    epoch bigint not null default 0,
    era integer not null default 1,
    constraint fence_pk primary key (id),
    constraint fence_single_ck check (id = 1)
);
insert into xce.fence (id) values (1);

-- 3. People ----------------------------------------------------------------------------------

create table xce.user_account (
    id bigint generated always as identity,
    name text not null,
    os_user text,
    is_operator boolean not null default false,
    created_at timestamptz not null default clock_timestamp(),
    constraint user_account_pk primary key (id),
    constraint user_account_name_uq unique (name),
    constraint user_account_name_ck check (name ~ '^[a-z0-9][a-z0-9._-]{0,62}$')
);

create table xce.token (
    id bigint generated always as identity,
    user_id bigint not null,
    role text not null,
    sha256 bytea not null,
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    constraint token_pk primary key (id),
    constraint token_user_fk foreign key (user_id) references xce.user_account (id),
    constraint token_sha256_uq unique (sha256),
    constraint token_sha256_ck check (octet_length(sha256) = 32),
    constraint token_role_ck check (role in ('owner', 'operator', 'job'))
);

create table xce.project (
    id bigint generated always as identity,
    name text not null,
    is_open boolean not null default false,
    constraint project_pk primary key (id),
    constraint project_name_uq unique (name)
);
insert into xce.project (name, is_open) values ('default', true);

create table xce.project_member (
    project_id bigint not null,
    user_id bigint not null,
    constraint project_member_pk primary key (project_id, user_id),
    constraint project_member_project_fk foreign key (project_id) references xce.project (id),
    constraint project_member_user_fk foreign key (user_id) references xce.user_account (id)
);

create table xce.queue (
    id bigint generated always as identity,
    name text not null,
    existing_hosts text,
    fence text,
    constraint queue_pk primary key (id),
    constraint queue_name_uq unique (name),
    constraint queue_existing_hosts_ck check (existing_hosts in ('prefer', 'exclude', 'any')),
    constraint queue_fence_ck check (fence in ('stop', 'keep'))
);
insert into xce.queue (name) values ('default');

-- 4. Hosts -----------------------------------------------------------------------------------

create table xce.host (
    id bigint generated always as identity,
    name text not null,
    login name not null,
    lifecycle text not null generated always as ('host') stored,
    state text not null,
    reason text,
    version bigint not null default 1,
    cpus integer not null,
    mem_mib bigint not null,
    gpus integer not null default 0,
    labels jsonb not null default '{}',
    drain_wanted boolean not null default false,
    cpus_used integer not null default 0,
    mem_mib_used bigint not null default 0,
    gpus_used integer not null default 0,
    cpus_held integer not null default 0,
    mem_mib_held bigint not null default 0,
    gpus_held integer not null default 0,
    incarnation bigint not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    changed xid8 not null default pg_current_xact_id(),
    constraint host_pk primary key (id),
    constraint host_state_fk foreign key (lifecycle, state) references xce.state (lifecycle, state),
    constraint host_state_ck check (state <> 'none'),
    constraint host_name_ck check (name ~ '^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$'),
    constraint host_size_ck check (cpus > 0 and mem_mib >= 0 and gpus >= 0),
    constraint host_counted_ck check (
        least(cpus_used, cpus_held, gpus_used, gpus_held) >= 0 and least(mem_mib_used, mem_mib_held) >= 0
    ),
    constraint host_capacity_ck check (
        cpus_used + cpus_held <= cpus and mem_mib_used + mem_mib_held <= mem_mib and gpus_used + gpus_held <= gpus
    )
) with (fillfactor = 70);
create unique index host_name_uq on xce.host (name) where state <> 'removed';
create unique index host_login_uq on xce.host (login) where state <> 'removed';

create table xce.incarnation (
    host_id bigint not null,
    incarnation bigint not null,
    boot_id text not null,
    worker_version text not null,
    address text,
    fingerprint text,
    fence_s_max numeric not null,
    started_at timestamptz not null default clock_timestamp(),
    constraint incarnation_pk primary key (host_id, incarnation),
    constraint incarnation_host_fk foreign key (host_id) references xce.host (id)
);

-- One narrow row a host, because it is rewritten every few seconds.
create table xce.heartbeat (
    host_id bigint not null,
    incarnation bigint not null,
    last_seen_at timestamptz not null,
    constraint heartbeat_pk primary key (host_id),
    constraint heartbeat_host_fk foreign key (host_id) references xce.host (id)
) with (fillfactor = 50);

-- 5. Jobs ------------------------------------------------------------------------------------

create table xce.job (
    id bigint generated always as identity,
    owner_id bigint not null,
    project_id bigint not null,
    queue_id bigint not null,
    name text,
    lifecycle text not null generated always as ('job') stored,
    state text not null,
    reason text,
    version bigint not null default 1,
    submitted_tasks integer not null,
    submitted_tasks_min integer not null,
    min_tasks integer not null,
    max_tasks integer not null,
    cpus integer not null,
    mem_mib bigint not null,
    gpus integer not null,
    span jsonb not null,
    existing_hosts text not null,
    constraints jsonb not null,
    hosts text[],
    exclude_hosts text[] not null,
    priority integer not null,
    begin_at timestamptz,
    held boolean not null default false,
    ends_when text not null,
    on_task_failure text not null,
    on_host_loss text not null,
    fence text not null,
    grace_s numeric not null,
    start_s numeric not null,
    run_limit_s numeric,
    loss_grace_s numeric not null,
    attempt integer not null default 1,
    generation bigint not null default 0,
    revision bigint not null default 0,
    next_index integer not null default 0,
    -- Why it stops or will stop, fixed by the first stop; `is_requeue` says that a new attempt follows.
    stop_cause text,
    is_requeue boolean not null default false,
    exit_code integer,
    submitted_at timestamptz not null,
    started_at timestamptz,
    ended_at timestamptz,
    changed xid8 not null default pg_current_xact_id(),
    is_open boolean generated always as (state not in ('done', 'exited')) stored,
    constraint job_pk primary key (id),
    constraint job_state_fk foreign key (lifecycle, state) references xce.state (lifecycle, state),
    constraint job_state_ck check (state <> 'none'),
    constraint job_owner_fk foreign key (owner_id) references xce.user_account (id),
    constraint job_project_fk foreign key (project_id) references xce.project (id),
    constraint job_queue_fk foreign key (queue_id) references xce.queue (id),
    constraint job_bounds_ck check (
        1 <= min_tasks and min_tasks <= submitted_tasks_min and submitted_tasks_min <= submitted_tasks
        and submitted_tasks <= max_tasks
    ),
    constraint job_resources_ck check (cpus >= 0 and mem_mib >= 0 and gpus >= 0 and cpus + mem_mib + gpus > 0),
    constraint job_existing_hosts_ck check (existing_hosts in ('prefer', 'exclude', 'any')),
    constraint job_ends_when_ck check (ends_when in ('all', 'head')),
    constraint job_on_task_failure_ck check (on_task_failure in ('ignore', 'end_job')),
    constraint job_on_host_loss_ck check (on_host_loss in ('requeue', 'shrink', 'exit')),
    constraint job_fence_ck check (fence in ('stop', 'keep')),
    constraint job_times_ck check (grace_s >= 0 and start_s > 0 and run_limit_s > 0 and loss_grace_s >= 0),
    constraint job_ended_ck check ((ended_at is not null) = (state in ('done', 'exited')))
) with (fillfactor = 70);
create index job_open_ix on xce.job (id) where is_open;
create index job_owner_ix on xce.job (owner_id, id);

-- What a task needs to be started, wide and never changed: kept away from the row that is.
create table xce.job_launch (
    job_id bigint not null,
    command text[] not null,
    head_command text[],
    env jsonb not null,
    cwd text,
    stdout text,
    stderr text,
    constraint job_launch_pk primary key (job_id),
    constraint job_launch_job_fk foreign key (job_id) references xce.job (id)
);

-- 6. Requests, holds, tasks --------------------------------------------------------------------

create table xce.resize_request (
    id bigint generated always as identity,
    job_id bigint not null,
    attempt integer not null,
    kind text not null,
    state text not null,
    reason text,
    version bigint not null default 1,
    tasks_asked integer not null,
    tasks_min integer not null,
    tasks_max integer not null,
    tasks_granted integer,
    task_indices integer[] not null default '{}',
    hosts text[],
    exclude_hosts text[] not null default '{}',
    existing_hosts text,
    remainder text not null default 'close',
    grace_s numeric,
    deadline_at timestamptz,
    parent_id bigint,
    superseded_by bigint,
    origin text not null,
    requested_by bigint,
    created_at timestamptz not null,
    committed_at timestamptz,
    start_deadline_at timestamptz,
    finished_at timestamptz,
    generation bigint,
    changed xid8 not null default pg_current_xact_id(),
    is_open boolean generated always as (
        state in ('pending', 'placed', 'committed', 'stopping')
    ) stored,
    constraint resize_request_pk primary key (id),
    constraint resize_request_job_fk foreign key (job_id) references xce.job (id),
    constraint resize_request_state_fk foreign key (kind, state) references xce.state (lifecycle, state),
    constraint resize_request_state_ck check (state <> 'none'),
    constraint resize_request_kind_ck check (kind in ('start', 'grow', 'shrink')),
    constraint resize_request_counts_ck check (
        0 <= tasks_min and tasks_min <= tasks_max and tasks_max <= tasks_asked
    ),
    constraint resize_request_parent_fk foreign key (parent_id) references xce.resize_request (id),
    constraint resize_request_superseded_fk foreign key (superseded_by) references xce.resize_request (id),
    constraint resize_request_user_fk foreign key (requested_by) references xce.user_account (id),
    constraint resize_request_origin_ck check (origin in ('owner', 'operator', 'job', 'controller')),
    constraint resize_request_remainder_ck check (remainder in ('keep', 'close')),
    constraint resize_request_existing_hosts_ck check (existing_hosts in ('prefer', 'exclude', 'any')),
    constraint resize_request_finished_ck check (
        (finished_at is not null) = (state in ('running', 'cancelled', 'failed', 'released'))
    )
) with (fillfactor = 70);
create index resize_request_open_ix on xce.resize_request (job_id, id) where is_open;
create index resize_request_job_ix on xce.resize_request (job_id, id);

create table xce.hold (
    request_id bigint not null,
    host_id bigint not null,
    tasks integer not null,
    constraint hold_pk primary key (request_id, host_id),
    constraint hold_request_fk foreign key (request_id) references xce.resize_request (id),
    constraint hold_host_fk foreign key (host_id) references xce.host (id),
    constraint hold_tasks_ck check (tasks > 0)
);
create index hold_host_ix on xce.hold (host_id);

create table xce.task (
    id bigint generated always as identity,
    job_id bigint not null,
    attempt integer not null,
    index integer not null,
    host_id bigint not null,
    request_id bigint not null,
    -- The shrink that names it: reserved while that is pending, leaving once it stops.
    shrink_id bigint,
    lifecycle text not null generated always as ('task') stored,
    state text not null,
    version bigint not null default 1,
    -- How its grow or start counts it, decided once (PROTOCOL 2).
    outcome text,
    how text,
    reason text,
    exit_code integer,
    signal integer,
    cpus integer not null,
    mem_mib bigint not null,
    gpus integer not null,
    incarnation bigint,
    stop_cause text,
    stop_grace_s numeric,
    cpu_used_us bigint,
    mem_peak_mib bigint,
    assigned_at timestamptz not null,
    started_at timestamptz,
    ended_at timestamptz,
    is_open boolean generated always as (state <> 'ended') stored,
    is_member boolean generated always as (state in ('assigned', 'starting', 'running')) stored,
    constraint task_pk primary key (id),
    constraint task_job_fk foreign key (job_id) references xce.job (id),
    constraint task_host_fk foreign key (host_id) references xce.host (id),
    constraint task_request_fk foreign key (request_id) references xce.resize_request (id),
    constraint task_shrink_fk foreign key (shrink_id) references xce.resize_request (id),
    constraint task_state_fk foreign key (lifecycle, state) references xce.state (lifecycle, state),
    constraint task_state_ck check (state <> 'none'),
    constraint task_index_uq unique (job_id, attempt, index),
    constraint task_index_ck check (index >= 0),
    constraint task_outcome_ck check (outcome in ('came_up', 'withdrawn', 'failed')),
    constraint task_how_ck check (how in ('exited', 'signalled', 'failed', 'released', 'lost', 'withdrawn')),
    constraint task_ended_ck check ((state = 'ended') = (ended_at is not null and how is not null)),
    constraint task_stopping_ck check (state <> 'stopping' or stop_cause is not null)
) with (fillfactor = 70);
-- R3: over all attempts, because a process of an earlier one may still live. Queries for a job's members
-- say `is_open and is_member`, so that this index serves them and the ended tasks are never read.
create unique index task_live_uq on xce.task (job_id, index) where is_open;
create index task_host_ix on xce.task (host_id, id) where is_open;
create index task_request_ix on xce.task (request_id);
create index task_shrink_ix on xce.task (shrink_id) where shrink_id is not null;

-- What a routine did that its end has to book: tasks that ended and requests whose holds go give
-- room back to their hosts, which are locked last and once; rings are rung after the commit.
create type xce.effects as (
    ended bigint[],
    unheld bigint[],
    rings text[]
);

-- One host of one place decision of a plan: `ordinal` is the decision's place in the plan, `place`
-- the host's place in the decision, which fixes the order of the new tasks' indices.
create type xce.placement as (
    ordinal integer,
    request_id bigint,
    job_id bigint,
    host_id bigint,
    tasks integer,
    place bigint,
    is_commit boolean
);

-- 7. Accounting --------------------------------------------------------------------------------

create table xce.allocation (
    task_id bigint not null,
    job_id bigint not null,
    attempt integer not null,
    task_index integer not null,
    host_id bigint not null,
    cpus integer not null,
    mem_mib bigint not null,
    gpus integer not null,
    during tstzrange not null,
    constraint allocation_pk primary key (task_id),
    constraint allocation_task_fk foreign key (task_id) references xce.task (id),
    constraint allocation_overlap_ex exclude using gist (job_id with =, task_index with =, during with &&)
);

-- 8. History -----------------------------------------------------------------------------------

create table xce.history (
    lifecycle text not null,
    row_id bigint not null,
    version bigint not null,
    at timestamptz not null,
    job_id bigint,
    attempt integer,
    source text not null,
    event text not null,
    target text not null,
    actor text not null,
    actor_id bigint,
    reason text,
    detail jsonb,
    generation bigint,
    epoch bigint,
    era integer not null,
    xid xid8 not null default pg_current_xact_id(),
    constraint history_pk primary key (lifecycle, row_id, version, at),
    constraint history_edge_fk foreign key (lifecycle, source, event, target)
        references xce.edge (lifecycle, source, event, target)
) partition by range (at);
create table xce.history_default partition of xce.history default;
create index history_job_ix on xce.history (job_id, at) where job_id is not null;
create index history_xid_ix on xce.history (era, xid);

create table xce.tick (
    id bigint generated always as identity,
    epoch bigint not null,
    at timestamptz not null,
    snapshot pg_snapshot not null,
    policy jsonb not null,
    decisions jsonb not null,
    refused integer not null,
    era integer not null,
    constraint tick_pk primary key (id)
);

-- 9. Idempotency -------------------------------------------------------------------------------

create table xce.idempotency_key (
    user_id bigint not null,
    method text not null,
    path text not null,
    key text not null,
    body_sha256 text not null,
    status integer not null,
    resource text not null,
    resource_id bigint not null,
    created_at timestamptz not null,
    constraint idempotency_key_pk primary key (user_id, method, path, key),
    constraint idempotency_key_user_fk foreign key (user_id) references xce.user_account (id),
    constraint idempotency_key_key_ck check (octet_length(key) between 1 and 255)
);
create index idempotency_key_created_ix on xce.idempotency_key (created_at);
