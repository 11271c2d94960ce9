"""What the commands do, print and exit with."""

import json
import subprocess
import sys
import threading

import pytest

from tests.api.world import World
from tests.cli.conftest import Types


def submitted(xcecli: Types, *options: object) -> int:
    done = xcecli("submit", "-o", "json", *options, "sleep", "60")
    assert done.code == 0, done.err
    return int(json.loads(done.out)["id"])


def test_a_job_is_submitted_grown_shrunk_and_killed(world: World, xcecli: Types) -> None:
    world.hosts("h1")
    world.hosts("h2")
    job = submitted(xcecli, "--tasks", 2, "--max-tasks", 6, "--min-tasks", 1, "--name", "demo")
    world.start(job)
    grown = xcecli("resize", "request", "1,2", job, "-o", "json")
    assert json.loads(grown.out)["tasks_min"] == 1
    world.start(job)
    listed = xcecli("jobs", "--state", "running")
    assert listed.out.splitlines()[0].split()[:5] == ["id", "name", "state", "owner", "tasks"]
    assert listed.out.splitlines()[1].split()[:5] == [str(job), "demo", "running", "alice", "4"]
    released = xcecli("resize", "release", "t3", job, "-o", "json")
    assert json.loads(released.out)["task_indices"] == [3]
    world.start(job)
    assert xcecli("resize", "list", job).out.count("\n") == 3
    assert "task_seconds" in xcecli("usage", job).out
    assert len(xcecli("tasks", job).out.splitlines()) == 4
    assert xcecli("allocation", job).out.splitlines()[0].startswith("index")
    assert "submit" in xcecli("history", job).out
    killed = xcecli("kill", job)
    assert (killed.code, killed.err) == (0, "")
    world.converge(job)
    assert "exited" in xcecli("job", job).out


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("2",), {"count": 2}),
        (("t1,t2",), {"tasks": [1, 2]}),
        (("h1,h2",), {"hosts": ["h1", "h2"]}),
        (("--tasks", "1,2"), {"tasks": [1, 2]}),
        (("--hosts", "t3"), {"hosts": ["t3"]}),
        (("--count", "2"), {"count": 2}),
    ],
)
def test_release_understands_what_it_is_given(
    words: tuple[str, ...], wanted: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.cli.main import run
    from app.client.client import Client
    from app.wire.encoding import encode

    seen: list[object] = []

    def resize(_: Client, job_id: int, ask: object, *, if_match: int | None) -> None:
        seen.append((job_id, json.loads(encode(ask))))
        raise SystemExit(0)

    monkeypatch.setattr(Client, "resize", resize)
    monkeypatch.setenv("XCE_API_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("XCE_TOKEN", "x")
    with pytest.raises(SystemExit):
        run(["resize", "release", *words, "7"])
    assert seen == [(7, {"shrink": wanted})]


def test_refusals_have_their_exit_codes_and_say_what_to_do(world: World, xcecli: Types) -> None:
    world.hosts("h1")
    job = submitted(xcecli, "--tasks", 2)
    world.start(job)
    cases = [
        (("job", 999), 3, "not_found"),
        (("job", job, "bob"), 2, "unexpected extra argument"),
        (("resize", "request", 1, job), 4, "above_max"),
        (("resize", "release", "t0", job), 4, "head_task"),
        (("resize", "release", "t1", job), 4, "below_min"),
        (("resize", "request", 1, job, "--if-match", 77), 5, "stale_generation"),
        (("settings",), 7, "not_allowed"),
        (("submit", "--project", "secret", "x"), 7, "project_not_allowed"),
        (("resize", "request", 0, job), 2, "0 is not in the range"),
        (("resize", "request", "3,1", job), 2, "minimum above its maximum"),
        (("resize", "release", "2*h1", job), 2, "name tasks"),
        (("nonsense",), 2, "No such command"),
    ]
    for words, code, said in cases:
        done = xcecli(*words)
        assert done.code == code, (words, done)
        assert said in done.err, (words, done.err)
        assert done.out == ""
    assert xcecli("job", job, who="bob").code == 3


def test_hosts_are_drained_and_resumed(world: World, xcecli: Types) -> None:
    world.hosts("h1")
    assert "yes" in xcecli("host", "drain", "h1", who="root").out
    assert "down" in xcecli("hosts", who="root").out
    assert "joining" in xcecli("host", "resume", "h1", who="root").out


def test_wait_ends_with_what_was_waited_for(world: World, xcecli: Types) -> None:
    world.hosts("h1")
    job = submitted(xcecli, "--tasks", 1, "--max-tasks", 3)
    timed_out = xcecli("submit", "--wait", "--timeout", "0.1", "true")
    assert (timed_out.code, "pending" in timed_out.err) == (124, True)
    world.start(job)
    starter = threading.Timer(0.1, world.start, (job,))
    starter.start()
    grown = xcecli("resize", "request", 1, job, "--wait", "--timeout", 10, "-o", "json")
    starter.join()
    assert (grown.code, json.loads(grown.out)["state"]) == (0, "running")


def test_waiting_for_a_cancelled_request_ends_badly(world: World, xcecli: Types) -> None:
    world.hosts("h1")
    job = submitted(xcecli, "--tasks", 1, "--max-tasks", 3)
    world.start(job)
    client = world.user("alice")

    def cancel() -> None:
        items = client.get(f"/v1/jobs/{job}/resizes").body["items"]
        client.post(f"/v1/resizes/{items[0]['id']}/cancel")

    canceller = threading.Timer(0.2, cancel)
    canceller.start()
    done = xcecli("resize", "request", 1, job, "--wait", "--timeout", 10)
    canceller.join()
    assert (done.code, "cancelled" in done.err) == (1, True)


def test_without_an_api_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from app.cli.main import run
    from app.client import link

    monkeypatch.setattr(link, "FIRST_PAUSE_S", 100.0)
    monkeypatch.setenv("XCE_API_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("XCE_TOKEN", "x")
    with pytest.raises(SystemExit) as end:
        run(["jobs"])
    assert end.value.code == 6
    monkeypatch.delenv("XCE_TOKEN")
    monkeypatch.delenv("XCE_TOKEN_FILE", raising=False)
    with pytest.raises(SystemExit) as end:
        run(["jobs"])
    assert end.value.code == 2


def test_the_program_starts_and_helps() -> None:
    """Importing little is what keeps it quick: neither the client nor msgspec for --help."""
    code = (
        "import sys; from app.cli.main import run; run(['--help']);"
        " print([m for m in ('msgspec', 'http.client', 'app.client.client') if m in sys.modules],"
        " file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert "resize" in done.stdout
    assert done.stderr == "[]\n"


def test_a_variable_of_the_job_may_stay_out_of_the_command_line(
    world: World, xcecli: Types, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "very=secret")
    job = submitted(xcecli, "--env", "API_KEY", "--env", "PLAIN=a=b", "--env", "EMPTY=")
    told = json.loads(xcecli("job", job, "-o", "json").out)
    assert told["env"] == {"API_KEY": "very=secret", "PLAIN": "a=b", "EMPTY": ""}
    monkeypatch.delenv("API_KEY")
    refused = xcecli("submit", "--env", "API_KEY", "true")
    assert refused.code == 2
    assert "API_KEY" in refused.err
