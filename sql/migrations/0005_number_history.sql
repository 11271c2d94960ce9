-- Expand: history is the feed of events. The cursor (era, transaction, id) needs a number for the rows
-- of one transaction. A sequence, because identity columns of partitioned tables need PostgreSQL 17.
-- The rows that are there are numbered as they lie, which is the order they were written in. Takes
-- history for itself while it rewrites it. An older release goes on writing: the default numbers.

create sequence xce.history_id_seq as bigint;
alter table xce.history
      add column id bigint not null default nextval('xce.history_id_seq');
alter sequence xce.history_id_seq owned by xce.history.id;

create index history_feed_ix on xce.history (era, xid, id);
-- The new one begins with the same columns.
drop index xce.history_xid_ix;
