"""What operators type: hosts, settings, tokens; and reports and filters for everybody."""

import json
import stat
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from tests.api.test_hosts import silence
from tests.api.world import Client, World
from tests.cli.conftest import Types
from tests.cli.test_commands import submitted


def test_a_lost_host_is_vouched_for_and_removed(world: World, xcecli: Types) -> None:
    world.hosts("h1", "h2")
    early = xcecli("host", "remove", "h2", who="root")
    assert (early.code, "drain it first" in early.err) == (4, True)
    silence(world, "h2")
    doubted = xcecli("host", "down", "h2", who="root")
    assert (doubted.code, "make sure that it is off" in doubted.err) == (4, True)
    sure = xcecli("host", "down", "h2", "--confirm-dead", "-o", "json", who="root")
    assert json.loads(sure.out)["state"] == "down"
    gone = xcecli("host", "remove", "h2", who="root")
    assert (gone.code, gone.out, gone.err) == (0, "", "xcecli: host h2 is removed\n")
    assert xcecli("host", "show", "h2", who="root").code == 3
    assert xcecli("host", "remove", "h1").code == 7
    assert "h1" in xcecli("hosts", "--state", "up").out
    assert "h2" in xcecli("hosts", "--state", "removed").out


def test_settings_are_listed_and_changed(world: World, xcecli: Types) -> None:
    changed = xcecli("setting", "poll_s", "2.5", "-o", "yaml", who="root")
    assert yaml.safe_load(changed.out)["value"] == 2.5
    listed = xcecli("settings", who="root").out.splitlines()
    assert any(line.split()[:4] == ["poll_s", "2.5", "s", "root"] for line in listed)
    for value, code, said in (("0", 4, "at least 0.01"), ("x", 2, "not a valid float")):
        refused = xcecli("setting", "poll_s", value, who="root")
        assert (refused.code, said in refused.err) == (code, True)
    assert xcecli("setting", "nonsense", 1, who="root").code == 3
    assert xcecli("setting", "poll_s", 1).code == 7


def test_a_token_goes_to_a_private_file_and_nowhere_else(
    world: World, xcecli: Types, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    made = xcecli("token", "create", "--file", path, "--expires-in-s", 60, "-o", "json")
    assert made.code == 0, made.err
    secret = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert secret.strip() not in made.out + made.err
    assert Client(world.url, secret.strip()).get("/v1/jobs").status == 200
    token_id = json.loads(made.out)["id"]
    assert "token" not in json.loads(made.out)
    again = xcecli("token", "create", "--file", path)
    assert (again.code, path.read_text()) == (2, secret)
    foreign = tmp_path / "foreign"
    assert xcecli("token", "create", "--file", foreign, "--user", "bob").code == 7
    assert not foreign.exists()
    assert xcecli("token", "revoke", token_id).code == 0
    assert xcecli("token", "revoke", 999).code == 3
    listed = xcecli("token", "list", "--state", "revoked", "-o", "json")
    assert [item["id"] for item in json.loads(listed.out)["items"]] == [token_id]
    assert Client(world.url, secret.strip()).get("/v1/jobs").status == 401


def test_usage_of_one_job_and_of_all(world: World, xcecli: Types) -> None:
    world.hosts("h1")
    job = submitted(xcecli, "--tasks", 2)
    world.start(job)
    assert "task_seconds" in xcecli("usage", job).out
    by_host = xcecli("usage", "--by", "host", "--from", "2020-01-01", "--tz", "Asia/Kolkata")
    assert [line.split()[0] for line in by_host.out.splitlines()] == ["host", "h1"]
    assert xcecli("usage").out.split()[0] == "project"
    report = json.loads(xcecli("usage", "--by", "day", "-o", "json").out)
    assert (report["by"], len(report["items"])) == ("day", 1)
    assert xcecli("usage", job, "--by", "day").code == 2
    refused = xcecli("usage", "--tz", "Mars")
    assert (refused.code, "IANA" in refused.err) == (4, True)


def test_lists_are_filtered(world: World, xcecli: Types) -> None:
    world.hosts("h1")
    job = submitted(xcecli, "--tasks", 2, "--max-tasks", 4)
    world.start(job)
    xcecli("resize", "request", 1, job)

    def rows(*words: object) -> int:
        return len(json.loads(xcecli(*words, "-o", "json").out)["items"])

    assert (rows("jobs", "--queue", "default"), rows("jobs", "--project", "other")) == (1, 0)
    assert (rows("tasks", job, "--host", "h1"), rows("tasks", job, "--state", "ended")) == (2, 0)
    assert rows("resize", "list", job, "--kind", "start,grow") == 2
    assert rows("resize", "list", job, "--state", "running", "--all") == 1


def test_yaml_says_what_json_says_to_the_last_digit(world: World, xcecli: Types) -> None:
    world.hosts("h1")
    job = submitted(xcecli)
    world.start(job)
    with world.database.connect() as conn:
        conn.execute(
            "update xce.allocation set during = tstzrange('2001-01-01T00:00:00.000001Z', null)"
        )
    xcecli("kill", job)
    world.converge(job)
    told = (xcecli("usage", job, "-o", form).out for form in ("json", "yaml"))
    as_json, as_yaml = (
        next(line for line in text.splitlines() if "task_seconds" in line) for text in told
    )
    exact = Decimal(as_json.partition(":")[2].strip(" ,"))
    assert exact == Decimal(as_yaml.partition(":")[2].strip())
    assert exact % 1 != 0
    jobs = xcecli("jobs", "-o", "yaml").out
    assert yaml.safe_load(jobs) == json.loads(xcecli("jobs", "-o", "json").out)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(world: World, xcecli: Types, shell: str) -> None:
    told = xcecli("completion", shell)
    assert (told.code, "_XCECLI_COMPLETE" in told.out) == (0, True)
    assert xcecli("completion", "tcsh").code == 2


def test_a_drain_with_shrink_takes_jobs_off_the_host(world: World, xcecli: Types) -> None:
    world.hosts("h1", "h2", cpus=1)
    job = submitted(xcecli, "--tasks", 2, "--min-tasks", 1)
    world.start(job)
    drained = xcecli("host", "drain", "h2", "--shrink", "-o", "json", who="root")
    assert json.loads(drained.out)["state"] == "draining"
    asked = json.loads(xcecli("resize", "list", job, "-o", "json").out)
    assert [(one["kind"], one["task_indices"]) for one in asked["items"]] == [("shrink", [1])]
