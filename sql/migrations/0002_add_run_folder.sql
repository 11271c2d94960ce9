-- Expand: which run folder a worker's keeper lives in. One that is restarted over another folder knows
-- nothing of what runs, and must not be believed when it says that nothing does.
alter table xce.incarnation add column run_folder text;
