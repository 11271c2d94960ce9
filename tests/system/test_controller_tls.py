"""`xce controller` over TLS, with a certificate of a real authority of the test's own."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.cluster import Database
from tests.system.processes import XCE, run

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="the program openssl is missing"),
]
XCECLI = (sys.executable, "-m", "app.cli.main")
WHO = "subjectAltName=DNS:localhost,IP:127.0.0.1"


class Papers(NamedTuple):
    """An authority's certificate, and a controller's own with its key."""

    authority: Path
    certificate: Path
    key: Path


def openssl(*arguments: str, folder: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    folder = tmp_path_factory.mktemp("tls")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(
        "req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2",
        "-subj", "/CN=a test's authority", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        folder=folder,
    )  # fmt: skip
    openssl(
        "req", *curve, "-keyout", "own.key", "-out", "own.csr", "-subj", "/CN=localhost",
        folder=folder,
    )  # fmt: skip
    (folder / "names").write_text(f"{WHO}\nauthorityKeyIdentifier=keyid\n")
    openssl(
        "x509", "-req", "-in", "own.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
        "-out", "own.pem", "-days", "2", "-extfile", "names",
        folder=folder,
    )  # fmt: skip
    return Papers(folder / "ca.pem", folder / "own.pem", folder / "own.key")


@contextmanager
def controller(database: Database, *options: str) -> Iterator[int]:
    """A controller on all addresses; its port, once it serves."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen(
        [*XCE, "controller", "--host", "0.0.0.0", "--port", str(port), *options],
        env={**os.environ, "XCE_DATABASE_URL": database.url},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert any("controller_started" in line for line in iter(process.stderr.readline, ""))
            yield port
        finally:
            process.terminate()
            process.communicate()
            assert process.returncode == 0


def xcecli(url: str, token: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("XCE_")}
    return subprocess.run(
        [*XCECLI, "jobs", "-o", "json"],
        env={**clean, "XCE_API_URL": url, "XCE_TOKEN_FILE": str(token), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def token(database: Database, tmp_path: Path) -> Path:
    path = tmp_path / "token"
    for arguments in (("user", "add", "ada"), ("token", "create", "ada", "--file", str(path))):
        made = run(*arguments, XCE_DATABASE_URL=database.url)
        assert made.returncode == 0, made.stderr
    return path


def test_xcecli_trusts_the_given_authority_or_the_systems_and_no_other(
    database: Database, token: Path, papers: Papers
) -> None:
    options = ("--tls-cert", str(papers.certificate), "--tls-key", str(papers.key))
    with controller(database, *options) as port:
        for host in ("localhost", "127.0.0.1"):
            url = f"https://{host}:{port}"
            answer = xcecli(url, token, XCE_CA_FILE=str(papers.authority))
            assert answer.returncode == 0, answer.stderr
        # What the system trusts is asked for when no file is named.
        assert xcecli(url, token, SSL_CERT_FILE=str(papers.authority)).returncode == 0

        stranger = xcecli(url, token)
        assert stranger.returncode == 6
        assert "not trusted" in stranger.stderr
        assert "XCE_CA_FILE" in stranger.stderr
        missing = xcecli(url, token, XCE_CA_FILE="/no/such/file")
        assert missing.returncode == 2
        assert "/no/such/file" in missing.stderr
        # In the clear it answers nobody.
        assert xcecli(f"http://127.0.0.1:{port}", token).returncode == 6


def test_beyond_loopback_it_wants_tls_or_to_be_told_that_it_may_go_without(
    database: Database, token: Path
) -> None:
    refused = run("controller", "--host", "0.0.0.0", XCE_DATABASE_URL=database.url)
    assert refused.returncode == 1
    assert "--tls-cert" in refused.stderr
    assert "--insecure" in refused.stderr
    with controller(database, "--insecure") as port:
        assert xcecli(f"http://127.0.0.1:{port}", token).returncode == 0


@pytest.mark.parametrize("case", ["no key", "no certificate", "swapped", "no certificate in it"])
def test_papers_that_do_not_fit_are_refused_at_once(
    database: Database, papers: Papers, tmp_path: Path, case: str
) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nothing\n")
    options = {
        "no key": ("--tls-cert", papers.certificate),
        "no certificate": ("--tls-key", papers.key),
        "swapped": ("--tls-cert", papers.key, "--tls-key", papers.certificate),
        "no certificate in it": ("--tls-cert", nonsense, "--tls-key", papers.key),
    }[case]
    refused = run("controller", "--port", "0", *map(str, options), XCE_DATABASE_URL=database.url)
    assert refused.returncode == 1
    assert "--tls-" in refused.stderr
    assert "Traceback" not in refused.stderr
