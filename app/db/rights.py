"""What a role needs so that `xce up` can use its database, and what it lacks."""

from collections.abc import Sequence

from psycopg import Connection
from psycopg.rows import TupleRow

from app.db import logins
from app.db.connect import connect_now
from app.db.errors import translated

OLDEST_VERSION = 150000
#: Since then a role may only give away and change roles that it administers.
ADMIN_OPTION_SINCE = 160000
ME = """
    select r.rolname::text, d.datname::text, r.rolsuper, r.rolcreaterole,
           pg_has_role(d.datdba, 'member'),
           coalesce((select pg_has_role(n.nspowner, 'member')
                       from pg_namespace n
                      where n.nspname = 'xce'), true),
           current_setting('server_version_num')::integer
      from pg_roles r, pg_database d
     where r.rolname = current_user
       and d.datname = current_database()
"""
NOT_MINE = """
    select r.rolname::text
      from pg_roles r
     where r.rolname = any (%s)
       and not pg_has_role(r.oid, 'member with admin option')
     order by 1
"""


def lacking(url: str, hosts: Sequence[str]) -> list[str]:
    """What has to be put right first, a sentence each. Raises Unavailable."""
    with connect_now(url, application="xce up") as conn, translated():
        row = conn.execute(ME).fetchone()
        assert row is not None
        role, database, is_superuser, may_create_roles, owns_database, owns_schema, version = row
        if version < OLDEST_VERSION:
            return [f"it is PostgreSQL {version // 10000}; xce needs 15 or newer"]
        if is_superuser:
            return []
        faults = []
        if not may_create_roles:
            faults.append(
                f'{role} may create no roles, and each daemon has its own: alter role "{role}" '
                "createrole"
            )
        if not owns_database:
            faults.append(
                f'the database {database} is not of {role}: alter database "{database}" owner to '
                f'"{role}"'
            )
        if not owns_schema:
            faults.append(f'the schema xce is not of {role}: alter schema xce owner to "{role}"')
        if version >= ADMIN_OPTION_SINCE:
            faults += [
                f'the role {name} was made by another role: grant "{name}" to "{role}" with admin '
                "option"
                for name in roles_of_others(conn, database, hosts)
            ]
        return faults


def roles_of_others(conn: Connection[TupleRow], database: str, hosts: Sequence[str]) -> list[str]:
    names = [logins.WORKER_GROUP, logins.CONTROLLER_GROUP, logins.controller_login_name(database)]
    names += [logins.host_login_name(database, host) for host in hosts]
    return [name for (name,) in conn.execute(NOT_MINE, (names,)).fetchall()]
