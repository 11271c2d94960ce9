"""What is written into and read from cgroup files.

The folders here are a stand-in for cgroupfs: plain files, nothing of the kernel behind them. The
controllers for memory and CPU belong to cgroup v1 on the machines that this is developed on, so
the kernel's side of limits cannot run there.
"""

import os
from pathlib import Path

import pytest

from app.keeper import cgroups
from app.keeper.cgroups import Cgroup, Cgroups, Limits, Unusable, delegated_base, enter

FILES = ("cgroup.procs", "cgroup.events", "cgroup.kill", "cgroup.subtree_control")
TASK_FILES = (*FILES, "cpu.max", "memory.max", "memory.oom.group", "memory.swap.max")


make_folder = os.mkdir


def make_group(folder: Path, files: tuple[str, ...] = FILES) -> Path:
    """As mkdir in cgroupfs does it."""
    make_folder(folder)
    for name in files:
        (folder / name).touch()
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    made = make_group(tmp_path / "base")
    make_group(made / cgroups.LEAF)
    (made / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    return made


def mounts(point: Path, root: str = "/") -> str:
    return (
        "22 1 0:21 / /proc rw - proc proc rw\n"
        f"41 31 0:38 {root} {point} rw,relatime - cgroup2 cgroup2 rw\n"
    )


@pytest.mark.parametrize(
    ("limits", "written"),
    [
        (Limits(), {"memory.oom.group": "1"}),
        (Limits(cpus=3), {"memory.oom.group": "1", "cpu.max": "300000 100000"}),
        (
            Limits(mem_mib=64),
            {"memory.oom.group": "1", "memory.max": "67108864", "memory.swap.max": "0"},
        ),
        (Limits(cpus=0, mem_mib=0), {"memory.oom.group": "1"}),
    ],
)
def test_a_task_is_limited_as_ordered(
    base: Path, monkeypatch: pytest.MonkeyPatch, limits: Limits, written: dict[str, str]
) -> None:
    groups = Cgroups()
    groups.take(str(base))
    assert (base / cgroups.LEAF / "cgroup.procs").read_text() == "0"
    assert groups.controllers == ["cpu", "memory", "pids"]
    place = groups.place((7, 1, 0), limits)
    assert place is not None
    monkeypatch.setattr(os, "mkdir", lambda path, mode: make_group(Path(path), TASK_FILES))
    enter(place)
    folder = Path(place[0])
    assert folder.name.startswith("task-7.1.0.")
    contents = {path.name: path.read_text() for path in folder.iterdir()}
    assert {name: text for name, text in contents.items() if text} == {
        "cgroup.procs": "0",
        **written,
    }


def test_without_swap_there_is_nothing_to_forbid(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = Cgroups()
    groups.take(str(base))
    place = groups.place((7, 1, 0), Limits(mem_mib=1))
    assert place is not None
    monkeypatch.setattr(os, "mkdir", lambda path, mode: make_group(Path(path), TASK_FILES[:-1]))
    enter(place)
    assert (Path(place[0]) / "memory.max").read_text() == "1048576"


def test_what_is_not_offered_is_not_asked_of_a_task(base: Path) -> None:
    (base / "cgroup.controllers").write_text("pids\n")
    groups = Cgroups()
    groups.take(str(base))
    assert str(groups) == f"cgroup v2: in {base}, without the controllers cpu memory"
    place = groups.place((7, 1, 0), Limits(cpus=1, mem_mib=1))
    assert place is not None
    assert place[1] == []


def test_two_keepers_of_one_base_do_not_meet(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        groups = Cgroups()
        groups.take(str(base))
        places.append(groups.place((7, 1, 0), Limits()))
    assert places[0] != places[1]


def test_usage_is_what_the_files_say(tmp_path: Path) -> None:
    folder = make_group(tmp_path / "task")
    (folder / "cpu.stat").write_text("usage_usec 1234\nuser_usec 1000\nsystem_usec 234\n")
    (folder / "memory.peak").write_text("2049\n")
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\n")
    usage = Cgroup(str(folder)).usage()
    assert (usage.cpu_used_us, usage.peak_kib, usage.out_of_memory) == (1234, 3, True)


def test_a_group_without_controllers_knows_less(tmp_path: Path) -> None:
    usage = Cgroup(str(make_group(tmp_path / "task"))).usage()
    assert (usage.cpu_used_us, usage.peak_kib, usage.out_of_memory) == (None, None, False)
    (tmp_path / "task" / "memory.events").write_text("oom 3\noom_kill 0\n")
    assert not Cgroup(str(tmp_path / "task")).usage().out_of_memory


def test_a_group_that_is_gone_is_empty(tmp_path: Path) -> None:
    group = Cgroup(str(tmp_path / "gone"))
    assert (group.is_empty(), group.pids(), group.kill(), group.remove()) == (True, [], False, True)


def test_not_being_able_to_look_is_not_emptiness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_group(tmp_path / "task")
    (folder / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    group = Cgroup(str(folder))
    assert not group.is_empty()
    (folder / "cgroup.events").unlink()
    (folder / "cgroup.events").mkdir()
    with pytest.raises(IsADirectoryError):
        group.is_empty()


@pytest.mark.parametrize("own", ["/a/xce.service", "/a/xce.service/keeper"])
def test_a_marked_group_is_found_from_itself_and_from_its_leaf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    (tmp_path / "a").mkdir()
    base = make_group(tmp_path / "a" / "xce.service")
    marks = {str(base): b"1"}
    monkeypatch.setattr(os, "getxattr", lambda path, name: marks.get(path, b"0"))
    assert delegated_base(mounts(tmp_path), f"1:name=systemd:/x\n0::{own}\n") == str(base)
    # Of a container that sees a part of the tree only.
    assert delegated_base(mounts(tmp_path, "/pod"), f"0::/pod{own}\n") == str(base)
    marks.clear()
    with pytest.raises(Unusable, match="was not delegated"):
        delegated_base(mounts(tmp_path), f"0::{own}\n")


def test_the_root_of_an_own_namespace_is_ours(tmp_path: Path) -> None:
    base = make_group(tmp_path / "ns")
    assert delegated_base(mounts(base), "0::/\n") == str(base)


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ("4:memory:/x\n", "not mounted"),
        ("0::/\n", "root of all groups"),
        ("0::/../other\n", "out of sight"),
        ("0::/gone\n", "root of all groups"),
    ],
)
def test_where_there_is_nothing_for_us_the_reason_is_said(
    tmp_path: Path, own: str, why: str
) -> None:
    with pytest.raises(Unusable, match=why):
        delegated_base(mounts(tmp_path), own)
    with pytest.raises(Unusable, match="not mounted"):
        delegated_base("22 1 0:21 / /proc rw - proc proc rw\n", "0::/\n")


def test_an_old_kernel_is_refused(tmp_path: Path) -> None:
    base = make_group(tmp_path / "ns", ("cgroup.procs", "cgroup.events"))
    with pytest.raises(Unusable, match=r"Linux 5\.14"):
        delegated_base(mounts(base), "0::/\n")


def test_a_base_that_cannot_be_left_is_unusable(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="No such file"):
        Cgroups().take(str(tmp_path / "gone"))
    groups = Cgroups()
    assert groups.place((7, 1, 0), Limits(cpus=1)) is None
