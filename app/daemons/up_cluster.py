"""What `xce up` makes in the database before any daemon starts: schema, people, hosts, logins."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.daemons.up_folder import UpFolder
from app.db.administration import Administration, HostSize
from app.db.migrate import migrate

OWNER = "owner"
OPERATOR = "operator"


@dataclass(frozen=True)
class Cluster:
    """The database as its owner reaches it, and the URLs that the daemons get."""

    url: str
    controller_url: str
    host_urls: Mapping[str, str]
    #: Incarnations before this start: a host is ready when its own is a later one.
    incarnations: Mapping[str, int]
    #: The cpus of hosts that an earlier start made of another size.
    other_sizes: Mapping[str, int]


def prepare(
    url: str, folder: UpFolder, *, hosts: int, cpus: int, settings: Mapping[str, float]
) -> Cluster:
    """Safe to repeat. Raises Refused for settings that make no sense, Unavailable, ScriptError."""
    migrate(url)
    names = [f"h{i}" for i in range(1, hosts + 1)]
    size = HostSize(cpus, memory_mib() // hosts if hosts else 0)
    with Administration.open(url) as administration:
        administration.write_settings(settings)
        make_people(administration, folder)
        controller = administration.add_controller_login(folder.passfile("controller"))
        logins = {
            name: administration.add_host(name, size, passfile=folder.passfile(name))
            for name in names
        }
        known = [host for host in administration.hosts() if host.name in names]
    return Cluster(
        url,
        controller.url,
        host_urls={name: login.url for name, login in logins.items()},
        incarnations={host.name: host.incarnation for host in known},
        other_sizes={host.name: host.cpus for host in known if host.cpus != cpus},
    )


def make_people(administration: Administration, folder: UpFolder) -> None:
    """One owner and one operator, with a token each that is kept between runs."""
    for name, role, path in (
        (OWNER, "owner", folder.owner_token),
        (OPERATOR, "operator", folder.operator_token),
    ):
        user_id = administration.user_id(name)
        if user_id is None:
            user_id = administration.add_user(name, is_operator=role == "operator")
        keep_token(administration, user_id, role, path)


def keep_token(administration: Administration, user_id: int, role: str, path: Path) -> None:
    if not path.exists():
        administration.add_token(user_id, role, path=path)


def memory_mib() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
