"""Another user of this machine: a number that no account has, in a process of its own."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

Answer = TypeVar("Answer")

UID = 47_110
GID = 47_111

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be somebody else")


def become(call: Callable[[], Answer], *, uid: int = UID, gid: int = GID) -> Answer:
    """What the call answers when that user makes it; its exception is raised here."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            try:
                answer = (True, call())
            except Exception as error:  # Whatever it is, the test has to see it.
                answer = (False, error)
            with open(writing, "wb") as pipe:
                pickle.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    has_answered, found = pickle.loads(text)
    if not has_answered:
        raise found
    return found


def owned(path: Path, *, uid: int = UID, gid: int = GID) -> Path:
    os.chown(path, uid, gid, follow_symlinks=False)
    return path
