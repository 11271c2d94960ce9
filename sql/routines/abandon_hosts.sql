-- Purpose: hosts of which their machine's administrator knows that no keeper and no task lives there any
--   more: they are lost at once, and what they had ends as after an expired fence. Each is named together
--   with the run folder that was looked at; one that was last served over another folder is left alone,
--   and so is one that never had a worker or is down. Administrators only. Answers the channels to ring.
-- Locks: job, request, task, host, heartbeat, each ascending. Raises: RZ422; 40001 when another job came
--   to one of the hosts meanwhile: the caller runs it again.
create or replace function xce.abandon_hosts(p_names text[], p_folders text[], p_now timestamptz default null)
returns text[]
language plpgsql
as $$
declare
    v_hosts bigint[] := xce.hosts_of_folders(p_names, p_folders);
    v_jobs bigint[] := array(select distinct j from unnest(v_hosts) as h (id), unnest(xce.jobs_on_host(h.id)) as j order by 1);
    v_out xce.effects := row('{}', '{}', '{}')::xce.effects;
    v_now timestamptz;
    v_host bigint;
begin
    perform xce.lock_silent(v_hosts, v_jobs);
    v_now := coalesce(p_now, clock_timestamp());
    -- Looked at again under the locks: a worker may have registered over another folder.
    v_hosts := array(select h.id from unnest(xce.hosts_of_folders(p_names, p_folders)) as h (id)
                      where h.id = any (v_hosts) order by h.id);
    if exists (select from unnest(v_hosts) as h (id) where not xce.jobs_on_host(h.id) <@ v_jobs) then
        raise exception 'a job came to one of the hosts meanwhile' using errcode = '40001';
    end if;
    for v_host in
        select h.id from xce.host h where h.id = any (v_hosts) and h.state <> 'lost' order by h.id
    loop
        v_out := xce.join_effects(v_out, xce.mark_lost(v_host, null, v_now));
    end loop;
    return xce.empty_lost_hosts(v_hosts, v_jobs, null, v_now, v_out);
end;
$$;

-- Purpose: those of these hosts whose last worker served the folder named with it, and that are not
--   down, ascending. Locks: none.
create or replace function xce.hosts_of_folders(p_names text[], p_folders text[])
returns bigint[]
language sql
stable
as $$
    select coalesce(array_agg(h.id order by h.id), '{}')
      from unnest(p_names, p_folders) as f (name, folder)
      join xce.host h on h.name = f.name
      join xce.incarnation i on i.host_id = h.id and i.incarnation = h.incarnation
     where h.state in ('joining', 'up', 'draining', 'lost')
       and i.run_folder = f.folder
$$;
