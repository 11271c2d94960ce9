-- Expand: what REST shows and reports read.

-- What a task made of its range stands beside it, so that a report reads this table alone. An open
-- range has none yet.
alter table xce.allocation
    add column cpu_used_us bigint,
    add column mem_peak_mib bigint;

update xce.allocation a
   set cpu_used_us = t.cpu_used_us,
       mem_peak_mib = t.mem_peak_mib
  from xce.task t
 where t.id = a.task_id
   and not t.is_open;

-- A report of a month reads the closed ranges that touch it, and the open ones, which are few. A range
-- enters the wide index once, when it is closed: a grow pays for the narrow one only.
create index allocation_closed_ix on xce.allocation using gist (during) where not upper_inf(during);
create index allocation_open_ix on xce.allocation (task_id) where upper_inf(during);

-- Who changed a setting, from what and when.
create table xce.setting_change (
    id bigint generated always as identity,
    name text not null,
    at timestamptz not null,
    value_before numeric not null,
    value numeric not null,
    -- Null is whoever administers the database itself.
    user_id bigint,
    constraint setting_change_pk primary key (id),
    constraint setting_change_setting_fk foreign key (name) references xce.setting (name),
    constraint setting_change_user_fk foreign key (user_id) references xce.user_account (id)
);
create index setting_change_name_ix on xce.setting_change (name, id);

create index token_user_ix on xce.token (user_id, id);
