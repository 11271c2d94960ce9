"""Secrets are planted, a job lives its whole life, and then they are looked for everywhere."""

import json
import os
import secrets
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.system.processes import Up, eventually, read, run, up

pytestmark = pytest.mark.timeout(300)

XCECLI = (sys.executable, "-m", "app.cli.main")

ROWS = """
    select c.oid::regclass::text
      from pg_catalog.pg_class c
     where c.relnamespace = 'xce'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
"""


@dataclass
class Life:
    """A cluster, what was planted in it, and everything that anybody was told."""

    cluster: Up
    env_secret: str = field(default_factory=lambda: f"env-{secrets.token_hex(12)}")
    wrong_token: str = field(default_factory=lambda: f"token-{secrets.token_hex(12)}")
    wrong_password: str = field(default_factory=lambda: f"password-{secrets.token_hex(12)}")
    made_token: str = ""
    told: list[tuple[str, str]] = field(default_factory=list)
    activity: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.cluster.folder

    @property
    def credentials(self) -> dict[str, str]:
        """What lets somebody in, by the file that it is in."""
        files = [self.folder / "postgres/passfile", *(self.folder / "passfiles").iterdir()]
        files += [self.folder / "owner.token", self.folder / "operator.token"]
        found = {path.name: path.read_text().strip().rpartition(":")[2] for path in files}
        planted = {"wrong token": self.wrong_token, "wrong password": self.wrong_password}
        planted |= {"made token": self.made_token} if self.made_token else {}
        return found | planted

    @property
    def all_secrets(self) -> dict[str, str]:
        return self.credentials | {"env": self.env_secret}

    def call(
        self, method: str, path: str, body: Any = None, *, token: str | None = None
    ) -> tuple[int, Any]:
        """What the API answers; noted down."""
        text = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        own = (self.folder / "owner.token").read_text().strip()
        request = urllib.request.Request(
            self.cluster.told["api"] + path,
            data=text or (b"" if method == "POST" else None),
            headers={"Authorization": f"Bearer {token or own}"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request) as answer:
                status, found = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            status, found = error.code, error.read().decode()
        self.told.append((f"{method} {path}", found))
        self.look_at_activity()
        return status, json.loads(found) if found.startswith(("{", "[")) else found

    def submit(self, **members: Any) -> int:
        body = {"command": ["sleep", "600"], "env": {"SECRET": self.env_secret}, "grace_s": 1}
        status, job = self.call("POST", "/v1/jobs", body | members)
        assert status == 201, job
        # It is the owner's to see.
        assert self.told.pop()[1].count(self.env_secret) == 1
        return int(job["id"])

    def until(self, job: int, state: str, **members: Any) -> None:
        client = self.cluster.client()
        eventually(lambda: client.job(job).state == state, f"job {job} {state}")

    def note(self, name: str, done: subprocess.CompletedProcess[str]) -> int:
        self.told.append((name, done.stdout + done.stderr))
        return done.returncode

    def xcecli(self, *words: str, **environment: str) -> int:
        names = {
            "XCE_API_URL": self.cluster.told["api"],
            "XCE_TOKEN_FILE": self.cluster.told["owner_token_file"],
        }
        done = subprocess.run(
            [*XCECLI, *words],
            env={**os.environ, **names, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return self.note(f"xcecli {words}", done)

    def look_at_activity(self) -> None:
        """As a superuser, who sees what everybody runs."""
        with psycopg.connect(self.cluster.told["database_url"]) as conn:
            rows = conn.execute("select query from pg_catalog.pg_stat_activity").fetchall()
        self.activity += [query for (query,) in rows]


def live(life: Life) -> None:
    """Submit, grow, shrink, refused, failing and killed; by one who may, and one who may not."""
    job = life.submit(tasks=2, min_tasks=1, max_tasks=4)
    life.until(job, "running")
    path = f"/v1/jobs/{job}"
    for body in ({"grow": 1}, {"grow": 9}, {"shrink": {"count": 1}}, {"shrink": {"tasks": [77]}}):
        life.call("POST", f"{path}/resizes", body)
    broken = life.submit(command=["/no/such/program"])
    life.until(broken, "exited")
    for what in ("", "/tasks?all=true", "/history", "/resizes?all=true", "/usage", "/allocation"):
        status, _ = life.call("GET", path + what)
        assert status == 200
        if not what:
            assert life.env_secret in life.told.pop()[1]
    operators = (life.folder / "operator.token").read_text().strip()
    for what in (path, "/v1/jobs", "/v1/hosts"):
        assert life.call("GET", what, token=operators)[0] == 200
    for what in (path, "/v1/hosts"):
        assert life.call("GET", what, token=life.wrong_token)[0] == 401
    status, made = life.call("POST", "/v1/tokens", {})
    assert status == 201
    # This answer is the one that tells it.
    life.made_token = made["token"]
    assert life.made_token in life.told.pop()[1]
    for what in ("/v1/tokens", "/v1/hosts", "/v1/usage"):
        assert life.call("GET", what, token=life.made_token)[0] == 200
    assert life.call("DELETE", f"/v1/tokens/{made['id']}")[0] < 300
    life.call("POST", f"{path}/kill")
    life.until(job, "exited")


REFUSED_BODIES = [
    b'{"command": ["x"], "env": {"SECRET": {"deep": "%s"}}}',
    b'{"command": ["x"], "env": {"SECRET": ["%s"]}}',
    b'{"command": ["x"], "env": "%s"}',
    b'{"command": ["x"], "env": {"A=%s": "%s"}}',
    b'{"command": ["x"], "env": {"SECRET": "%s\\u0000"}}',
    b'{"command": ["x"], "env": {"SECRET": "%s\\ud800"}}',
    b'{"command": ["x"], "env": {"SECRET": "%s"}, "unknown": "%s"}',
    b'{"command": ["x"], "env": {"SECRET": "%s"}',
    b'{"command": ["x"], "tasks": -1, "env": {"SECRET": "%s"}}',
    b'{"command": ["x"], "queue": "no-such-queue", "env": {"SECRET": "%s"}}',
]


def be_refused(life: Life) -> None:
    for body in REFUSED_BODIES:
        status, _ = life.call("POST", "/v1/jobs", body.replace(b"%s", life.env_secret.encode()))
        assert 400 <= status < 500, body
    missing = f"/v1/jobs/{life.wrong_token}"
    assert life.call("GET", missing)[0] == 404
    life.told.pop()


def meet_a_fault(life: Life) -> None:
    """A row that a constraint refuses: PostgreSQL would quote it."""
    with psycopg.connect(life.cluster.told["database_url"], autocommit=True) as conn:
        conn.execute("alter table xce.job_launch add constraint x_ck check (false) not valid")
        body = {"command": ["true"], "env": {"SECRET": life.env_secret}}
        assert life.call("POST", "/v1/jobs", body)[0] == 500
        conn.execute("alter table xce.job_launch drop constraint x_ck")


def type_commands(life: Life, scratch: Path) -> None:
    job = str(life.submit())
    submit = ("submit", "--env", "SECRET", "--", "sleep", "600")
    assert life.xcecli(*submit, SECRET=life.env_secret) == 0
    life.told.pop()
    for words in (("jobs",), ("job", job), ("tasks", job), ("history", job), ("hosts",)):
        for form in ("table", "json", "yaml"):
            if (words, form) == (("job", job), "table"):
                continue
            life.xcecli(*words, "-o", form)
            if words[0] == "job":
                # The owner's own view of it.
                life.told.pop()
    life.xcecli("resize", "request", "1", job)
    assert life.xcecli("jobs", XCE_TOKEN=life.wrong_token, XCE_TOKEN_FILE="") == 7
    wrong = scratch / "wrong.token"
    wrong.write_text(f"{life.wrong_token}\n")
    wrong.chmod(0o600)
    assert life.xcecli("jobs", XCE_TOKEN_FILE=str(wrong)) == 7
    assert life.xcecli("kill", job) == 0
    life.until(int(job), "exited")


def give_wrong_passwords(life: Life, scratch: Path) -> None:
    port = psycopg.conninfo.conninfo_to_dict(life.cluster.told["database_url"])["port"]
    passfile = scratch / "passfile"
    passfile.write_text(f"*:*:*:*:{life.wrong_password}\n")
    passfile.chmod(0o600)
    urls = [
        f"postgresql://postgres:{life.wrong_password}@127.0.0.1:{port}/xce",
        f"postgresql://postgres@127.0.0.1:{port}/xce?passfile={passfile}",
        f"postgresql://postgres:{life.wrong_password}@127.0.0.1:1/xce",
        f"postgresql://postgres:{life.wrong_password}@[::1/xce",
        f"postgresql://postgres:{life.wrong_password}@127.0.0.1/xce?nonsense=1",
        f"host=127.0.0.1 password={life.wrong_password} nonsense",
    ]
    for url in urls:
        for command in (("check",), ("migrate",), ("user", "add", "x"), ("setting",)):
            code = life.note(f"xce {command}", run(*command, XCE_DATABASE_URL=url))
            assert code == 1, life.told[-1]


def have_daemons_die(life: Life) -> None:
    """Their successors take over, and say so in their logs."""
    job = life.submit(tasks=2)
    life.until(job, "running")
    pids = life.cluster.state["pids"]
    for pid in (*pids["keepers"], *pids["workers"], *pids["controllers"]):
        os.kill(pid, 9)
    eventually(
        lambda: all(
            new is not None and new != old
            for name in ("keepers", "workers", "controllers")
            for new, old in zip(life.cluster.state["pids"][name], pids[name], strict=True)
        ),
        "successors",
        within_s=30,
    )
    eventually(lambda: _answers(life, job), "the API", within_s=30)
    life.call("POST", f"/v1/jobs/{job}/kill")
    life.until(job, "exited")


def _answers(life: Life, job: int) -> bool:
    try:
        status, _ = life.call("GET", f"/v1/jobs/{job}/tasks")
    except OSError:
        return False
    return status == 200


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    scratch = tmp_path_factory.mktemp("secrets")
    with up("--workers", "2", XCE_LOG_LEVEL="debug") as cluster:
        made = Life(cluster)
        live(made)
        be_refused(made)
        meet_a_fault(made)
        type_commands(made, scratch)
        give_wrong_passwords(made, scratch)
        have_daemons_die(made)
        # One that goes on while everything is searched.
        made.until(made.submit(tasks=2), "running")
        yield made


def found(all_secrets: dict[str, str], text: str | bytes) -> set[str]:
    whole = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    return {name for name, secret in all_secrets.items() if secret.encode() in whole}


def test_no_answer_and_no_output_tells_a_secret(life: Life) -> None:
    assert len(life.told) > 60
    for what, text in life.told:
        assert found(life.all_secrets, text) == set(), (what, text)


def test_no_command_line_tells_a_secret(life: Life) -> None:
    looked_at = 0
    for folder in Path("/proc").glob("[0-9]*"):
        assert found(life.all_secrets, read(folder / "cmdline")) == set()
        looked_at += 1
    assert looked_at > 5


def test_only_tasks_have_the_environment_of_a_job(life: Life) -> None:
    """And nobody a password or a token."""
    named = set()
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        environment = read(folder / "environ")
        assert found(life.credentials, environment) == set()
        if life.env_secret.encode() in environment:
            named.add(read(folder / "cmdline"))
    assert named <= {b"sleep\x00600\x00"}
    if os.getuid() == 0:
        assert named


def test_no_file_tells_a_secret_but_those_made_for_it(life: Life) -> None:
    private = {"passfile", "owner.token", "operator.token"}
    data = life.folder / "postgres/data"
    looked_at = set()
    for path in life.folder.rglob("*"):
        if not path.is_file() or path.is_socket():
            continue
        if path.name in private or path.parent.name == "passfiles":
            assert path.stat().st_mode & 0o077 == 0, path
            continue
        # A job's environment is a row; a password or a token is none.
        wanted = life.credentials if data in path.parents else life.all_secrets
        assert found(wanted, read(path)) == set(), path
        looked_at.add(path.name)
    assert {
        "up.json",
        "postgres.log",
        "keeper.log",
        "controller-1.log",
        "worker-h1.log",
    } <= looked_at
    assert any(name.endswith(".1.0.json") for name in looked_at)


def test_the_daemons_did_log_what_happened(life: Life) -> None:
    """Else the search above would prove nothing."""
    logs = {path.name: path.read_text() for path in (life.folder / "logs").iterdir()}
    assert "x_ck" in logs["controller-1.log"]
    assert "23514" in logs["controller-1.log"]
    server = (life.folder / "postgres/postgres.log").read_text()
    assert "x_ck" in server
    assert "password authentication failed" in server
    assert "DETAIL" not in server


def test_no_row_but_the_jobs_own_tells_a_secret(life: Life) -> None:
    with psycopg.connect(life.cluster.told["database_url"]) as conn:
        names = [name for (name,) in conn.execute(ROWS).fetchall()]
        assert len(names) > 15
        for name in names:
            query = sql.SQL("select t::text from {} t").format(sql.SQL(name))
            text = "\n".join(row[0] for row in conn.execute(query).fetchall())
            expected = {"env"} if name == "xce.job_launch" else set()
            assert found(life.all_secrets, text) == expected, name


def test_no_running_statement_tells_a_secret(life: Life) -> None:
    assert any("xce.submit_job" in query for query in life.activity)
    assert found(life.all_secrets, "\n".join(life.activity)) == set()


@pytest.mark.parametrize(
    "path", ["/metrics", "/schema", "/schema/openapi.json", "/healthz", "/readyz"]
)
def test_what_anybody_may_ask_for_tells_no_secret(life: Life, path: str) -> None:
    with urllib.request.urlopen(life.cluster.told["api"] + path) as answer:
        text = answer.read()
    assert text
    assert found(life.all_secrets, text) == set()


def test_what_up_says_tells_no_secret(tmp_path: Path) -> None:
    with up("--workers", "1", "--data", str(tmp_path / "data")) as cluster:
        life = Life(cluster)
        life.until(life.submit(), "running")
        kept = life.all_secrets
        state = (life.folder / "up.json").read_text()
        cluster.stop()
        assert cluster.process.stderr is not None
        said = cluster.process.stderr.read()
    assert "stopped" in said
    assert found(kept, said + state + cluster.lines_after + json.dumps(cluster.told)) == set()
