"""What `xce up` makes in the database before any daemon starts: schema, people, hosts, logins."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.daemons.keeper_watch import KeeperWatch
from app.daemons.up_folder import UpFolder
from app.daemons.up_wishes import UpError, Wishes
from app.db.administration import Administration, HostSize
from app.db.errors import Unavailable
from app.db.logins import Login
from app.db.migrate import migrate

OWNER = "owner"
OPERATOR = "operator"
Say = Callable[[str], None]
# The server's side of a session that was killed a moment ago takes that long to end.
SESSION_END_S = 3.0
LOOK_S = 0.05
MISSING_GRACE_S = 1.0


@dataclass(frozen=True)
class Cluster:
    """The database as its owner reaches it, and the URLs that the daemons get."""

    url: str
    controller_url: str
    host_urls: Mapping[str, str]
    #: Incarnations before this start: a host is ready when its own is a later one.
    incarnations: Mapping[str, int]


def prepare(url: str, folder: UpFolder, wishes: Wishes, say: Say) -> Cluster:
    """Safe to repeat. Raises UpError, Refused for nonsense settings, Unavailable, ScriptError."""
    migrate(url)
    names = wishes.hosts
    size = HostSize(wishes.cpus, memory_mib() // len(names) if names else 0)
    with Administration.open(url) as administration:
        administration.write_settings(first_settings(folder, wishes))
        make_people(administration, folder)
        refuse_served_hosts(administration, names)
        take_over_hosts(administration, folder, names, say)
        leave_missing_hosts(administration, folder, names, say)
        controller = administration.add_controller_login(folder.passfile("controller"))
        check_login(controller)
        logins = {
            name: administration.add_host(name, size, passfile=folder.passfile(name))
            for name in names
        }
        known = [host for host in administration.hosts() if host.name in names]
    for host in known:
        if host.cpus != wishes.cpus:
            say(f"warning: {host.name} keeps the {host.cpus} cpus it was made with")
    return Cluster(
        url,
        controller.url,
        host_urls={name: login.url for name, login in logins.items()},
        incarnations={host.name: host.incarnation for host in known},
    )


def check_login(login: Login) -> None:
    """Raises UpError when a login that was just made cannot come in with its password."""
    try:
        with Administration.open(login.url):
            return
    except Unavailable as error:
        raise UpError(
            f"the login {login.name}, made for the controllers, cannot connect ({error}): let "
            "pg_hba.conf accept scram-sha-256 for it, as for the logins of the hosts"
        ) from error


def first_settings(folder: UpFolder, wishes: Wishes) -> dict[str, float]:
    """The fence of kept tasks stays long until all hosts are up: a start may yet fail."""
    is_kept = folder.kept_fence() is not None
    return {n: v for n, v in wishes.settings.items() if not (is_kept and n == "fence_s")}


def set_fence_back(url: str, folder: UpFolder, wishes: Wishes) -> None:
    """Undo what keeping the tasks made of the fence, unless somebody changed it since."""
    kept = folder.kept_fence()
    if kept is None:
        return
    with Administration.open(url) as administration:
        if "fence_s" in wishes.settings:
            administration.write_settings({"fence_s": wishes.settings["fence_s"]})
        elif administration.settings()["fence_s"] == kept.keep_s:
            administration.write_settings({"fence_s": kept.before_s})
    folder.forget_fence()


def has_tasks(folder: UpFolder) -> bool:
    """Whether a keeper of this folder has a task that lives."""
    for name in folder.host_names():
        keeper = KeeperWatch(folder.host(name))
        try:
            if keeper.pid and any(task["state"] != "exited" for task in keeper.tasks()):
                return True
        except OSError:
            continue
        finally:
            keeper.close()
    return False


def refuse_another_database(folder: UpFolder, place: str) -> None:
    """Raises UpError while tasks live here of which only another database knows."""
    last = folder.database()
    if last not in (None, place) and has_tasks(folder):
        raise UpError(
            f"tasks live in {folder.root} that belong to another database ({last}): start and "
            "stop xce up with that one first, or give another --data"
        )
    folder.keep_database(place)


def refuse_served_hosts(administration: Administration, names: Sequence[str]) -> None:
    """Raises UpError when a worker of somebody else's serves one of the hosts right now."""
    give_up_at_s = time.monotonic() + SESSION_END_S
    while sessions := administration.sessions_of(names):
        if time.monotonic() > give_up_at_s:
            raise UpError(
                f"host {sessions[0].host} has a worker already, connected from "
                f"{sessions[0].address}: two would fight over it. End that one, or give "
                "another database"
            )
        time.sleep(LOOK_S)


def take_over_hosts(
    administration: Administration, folder: UpFolder, names: Sequence[str], say: Say
) -> None:
    """Raises UpError while tasks of one of the hosts may live under another folder."""
    found = administration.tasks_elsewhere(folder.host_ids(names))
    for host, _, tasks, left_s in found:
        if left_s is None or left_s > 0:
            end = "they never end by themselves" if left_s is None else f"for {left_s:.0f} s yet"
            raise UpError(
                f"{tasks} tasks of host {host} may live under another --data folder ({end}): "
                "start xce up with that folder again, or give another database"
            )
    over = {host: run_folder for host, run_folder, _, _ in found if run_folder is not None}
    if over:
        administration.ring(administration.abandon_hosts(over))
        say(f"tasks that {', '.join(over)} had under another folder are lost: their fence is over")


def leave_missing_hosts(
    administration: Administration, folder: UpFolder, names: Sequence[str], say: Say
) -> None:
    """Hosts of an earlier start that have no worker now are lost, and nothing of them lives on."""
    missing = [name for name in folder.host_names() if name not in names]
    gone = []
    for name in missing:
        if KeeperWatch(folder.host(name)).shut_down(grace_s=MISSING_GRACE_S):
            gone.append(name)
        else:
            say(f"warning: the keeper of {name} does not end; its tasks live until their fence")
    if gone:
        administration.ring(administration.abandon_hosts(folder.host_ids(gone)))
        say(f"without a worker now, and lost: {', '.join(gone)}")


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
    # A file alone proves nothing: the database may be another one, or have died in between.
    if not path.exists() or not administration.knows_token(user_id, path.read_text().strip()):
        administration.add_token(user_id, role, path=path)


def memory_mib() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
