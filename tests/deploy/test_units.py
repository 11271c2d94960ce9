"""What an administrator installs: units that systemd takes, and a runbook whose commands exist."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.admin.main import NAMES, xce

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
ANALYZE = shutil.which("systemd-analyze")


@pytest.mark.skipif(ANALYZE is None, reason="there is no systemd here")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    here = str(Path(sys.executable).parent)
    for unit in UNITS:
        text = unit.read_text().replace("/opt/xce/bin", here)
        (tmp_path / unit.name).write_text(text)
    assert ANALYZE is not None
    verified = subprocess.run(
        [ANALYZE, "verify", *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (verified.returncode, verified.stderr) == (0, "")


@pytest.mark.parametrize(
    "unit", [u for u in UNITS if "controller" not in u.name], ids=lambda u: u.name
)
def test_stopping_a_unit_leaves_the_tasks_alone(unit: Path) -> None:
    lines = unit.read_text().splitlines()
    assert "KillMode=process" in lines
    assert "Delegate=yes" in lines


def test_every_command_of_the_runbook_exists() -> None:
    told = (DEPLOY / "RUNBOOK.md").read_text() + (DEPLOY / "compose-init.sh").read_text()
    used = set(re.findall(r"(?:^|`|until )xce ([a-z-]+)", told, re.M))
    assert {"migrate", "login", "user", "token", "host", "restore", "check"} <= used
    assert used <= set(NAMES)
    options = set(re.findall(r"xce migrate (--[a-z-]+)", told))
    context = xce.make_context("xce", ["--help"], resilient_parsing=True)
    migrate = xce.get_command(context, "migrate")
    assert migrate is not None
    assert options <= {name for parameter in migrate.params for name in parameter.opts}


def test_no_secret_and_no_place_of_ours_is_in_what_is_deployed() -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            text = path.read_text()
            assert not re.search(r"postgresql://[^@/ ]*:[^@/ ]+@", text), path
            assert "/tmp/" not in text, path
