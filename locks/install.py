"""Make a virtual environment that holds exactly what the lock says, with xce in it, editable.

Usage: python3 locks/install.py DIRECTORY

Needs nothing but the standard library: where Python comes without ensurepip, the pip beside this
file does the first step.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

LOCKS = Path(__file__).resolve().parent
ROOT = LOCKS.parent


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python3 locks/install.py DIRECTORY")
    if sys.version_info < (3, 11):  # noqa: UP036 - run by whatever python3 is, to say so.
        sys.exit(f"xce needs Python 3.11 or newer, and this one is {sys.version.split()[0]}.")
    target = Path(sys.argv[1]).absolute()
    python = target / "bin" / "python"
    if not works(python):
        venv.create(target, clear=target.exists(), symlinks=True, with_pip=False)
    if not install_with_uv(python, target / "uv"):
        print("uv could not install; trying again with pip.", file=sys.stderr)
        install_with_pip(python)


def works(python: Path) -> bool:
    """Whether this interpreter still starts: a venv breaks when its Python is upgraded away."""
    return python.exists() and subprocess.run([python, "-c", ""], check=False).returncode == 0


def install_with_uv(python: Path, uv_folder: Path) -> bool:
    """Install everything with uv; False when uv is not to be had or cannot do it."""
    uv = uv_folder / "bin" / "uv"
    # uv lives outside site-packages, because its own sync would remove it from there.
    fetched = pip(
        python,
        *("install", "--quiet", "--upgrade", "--target", str(uv_folder)),
        *("--require-hashes", "--only-binary", ":all:", "-r", str(LOCKS / "uv.txt")),
    )
    if not fetched or not uv.exists():
        return False
    environment = os.environ | uv_settings(python)
    into = ("--quiet", "--python", str(python))
    steps = (
        ("sync", *into, "--require-hashes", str(LOCKS / "dev.txt")),
        ("install", *into, "--no-deps", "--no-build-isolation", "--offline", "-e", str(ROOT)),
    )
    return all(run([str(uv), "pip", *step], environment) for step in steps)


def install_with_pip(python: Path) -> None:
    locked = pip(python, "install", "--require-hashes", "--no-deps", "-r", str(LOCKS / "dev.txt"))
    ours = ("install", "--no-deps", "--no-build-isolation", "--no-index", "-e", str(ROOT))
    if not locked or not pip(python, *ours):
        sys.exit("The installation failed; the messages above say why.")


def uv_settings(python: Path) -> dict[str, str]:
    """What pip is configured with, in uv's words: uv does not read pip's configuration."""
    configured = pip_configuration(python)
    settings = {
        # A package may come from any index that is configured, because the hash decides.
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_LINK_MODE": "copy",
        "UV_NO_PROGRESS": "1",
    }
    words = {
        "index-url": "UV_DEFAULT_INDEX",
        "extra-index-url": "UV_INDEX",
        "find-links": "UV_FIND_LINKS",
        "trusted-host": "UV_INSECURE_HOST",
        "cert": "SSL_CERT_FILE",
        "timeout": "UV_HTTP_TIMEOUT",
        "default-timeout": "UV_HTTP_TIMEOUT",
    }
    for name, word in words.items():
        if name in configured:
            settings.setdefault(word, configured[name])
    return {word: value for word, value in settings.items() if word not in os.environ}


def pip_configuration(python: Path) -> dict[str, str]:
    """pip's settings for `install`; the environment outranks the files, as it does in pip."""
    listed = subprocess.run(
        [python, pip_program(), "config", "list"], capture_output=True, text=True, check=False
    )
    ranked: list[tuple[int, str, str]] = []
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in RANKS:
            ranked.append((RANKS[section], name, " ".join(value.strip("'\"").split())))
    return {name: value for _, name, value in sorted(ranked)}


RANKS = {"global": 0, "install": 1, ":env:": 2}


def pip(python: Path, *arguments: str) -> bool:
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return run([str(python), pip_program(), *arguments], environment)


def pip_program() -> str:
    """The pip that lies here as a wheel, which Python can run as it is."""
    return str(next(LOCKS.glob("pip-*.whl")) / "pip")


def run(command: list[str], environment: dict[str, str]) -> bool:
    return subprocess.run(command, env=environment, check=False).returncode == 0


if __name__ == "__main__":
    main()
