"""The output files of this host's tasks: opened without trusting their owner, and kept small.

A run folder belongs to the job's user, who may put anything there while we look, and the worker
may be root. So nothing below the folder of all run folders is followed, and what was opened is
looked at again.
"""

import ctypes
import errno
import os
import stat
import sys
import threading
from pathlib import Path, PurePosixPath

from app.runtime.logs import logger

#: No mistake of a file system, however odd, may let us cut within the bytes that are to stay.
BLOCK = 65_536
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01
_CANNOT_PUNCH = (errno.EOPNOTSUPP, errno.ENOSYS, errno.ENODEV)


class OutputGoneError(Exception):
    """There is no such file, or none that may be read; the message says what is there."""


def open_output(jobs: Path, name: str, *, flags: int = os.O_RDONLY) -> int:
    """A descriptor of the file `name` below `jobs`: a regular one, its own only name, owned by the
    user that the run folder was given to. Raises OutputGoneError.
    """
    run_folder, *folders, last = PurePosixPath(name).parts
    try:
        # Above the run folders all is the operator's: a link there is meant.
        parent = os.open(jobs, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            parent = _entered(parent, run_folder)
            owner = os.fstat(parent).st_uid
            for folder in folders:
                parent = _entered(parent, folder)
            file = os.open(last, flags | _FILE, dir_fd=parent)
        finally:
            os.close(parent)
    except OSError as error:
        raise OutputGoneError(error.strerror or type(error).__name__) from error
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != owner or found.st_nlink != 1:
        os.close(file)
        raise OutputGoneError("what is there is no file of the job's own")
    return file


def _entered(parent: int, folder: str) -> int:
    """The folder instead of its parent, which is closed. Raises OSError, with both still right."""
    entered = os.open(folder, _FOLDER, dir_fd=parent)
    os.close(parent)
    return entered


class OutputFile:
    """An output file that is being read; every method may block, and each may be in any thread."""

    def __init__(self, jobs: Path, name: str, offset: int) -> None:
        """From `offset` on, or from the first byte after it that is kept; a negative one counts
        from the end. Raises OutputGoneError.
        """
        self._file = open_output(jobs, name)
        # Closed while another thread reads, its number would be somebody else's file.
        self._lock = threading.Lock()
        self.size = os.fstat(self._file).st_size
        asked = offset if offset >= 0 else max(0, self.size + offset)
        self.at = _first_kept(self._file, asked) if asked < self.size else self.size

    def read(self, bytes_max: int) -> bytes:
        """The next bytes; none where nothing more is written yet.

        Raises OutputGoneError where the file was cut, at either end, across the place of reading.
        """
        with self._lock:
            if self._file < 0:
                return b""
            part = os.pread(self._file, bytes_max, self.at)
            # Looked at afterwards, because the hole may have come while we read.
            if part and _first_kept(self._file, self.at) != self.at:
                raise OutputGoneError("its oldest part was taken out")
            if not part and os.fstat(self._file).st_size < self.at:
                raise OutputGoneError("it was cut")
            self.at += len(part)
            return part

    def close(self) -> None:
        with self._lock:
            file, self._file = self._file, -1
            if file >= 0:
                os.close(file)


def _first_kept(file: int, offset: int) -> int:
    """The first offset from this one on that has bytes; the size where there are none."""
    try:
        return os.lseek(file, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return os.fstat(file).st_size
        # This file system cannot tell, and then it cannot punch either.
        return offset


class Trimmer:
    """Takes the oldest part out of files that are too large; offsets of what stays stay true."""

    def __init__(self, jobs: Path) -> None:
        self._jobs = jobs
        self._fallocate = _fallocate()
        self._is_told = False

    def trim(self, name: str, *, keep_bytes: int) -> bool:
        """Keep the last bytes of an output file; whether anything was taken out of it."""
        try:
            file = open_output(self._jobs, name, flags=os.O_WRONLY)
        except OutputGoneError:
            return False
        try:
            found = os.fstat(file)
            # Room taken, not size: of most files nothing is left to be taken out.
            if min(found.st_size, found.st_blocks * 512) <= keep_bytes + BLOCK:
                return False
            return self._punch(file, found.st_size - keep_bytes)
        except OSError as error:
            self._tell(name, error)
            return False
        finally:
            os.close(file)

    def _punch(self, file: int, end: int) -> bool:
        """A hole from the beginning to `end`, rounded down to a block."""
        length = end // BLOCK * BLOCK
        if length <= 0:
            return False
        if self._fallocate is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if self._fallocate(file, _PUNCH_HOLE_KEEP_SIZE, 0, length) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return True

    def _tell(self, name: str, error: OSError) -> None:
        """Once where no file of this host can be trimmed; each time where only this one cannot."""
        is_general = error.errno in _CANNOT_PUNCH
        if not (is_general and self._is_told):
            logger().warning("output_not_trimmed", name=name, detail=error.strerror)
        self._is_told = self._is_told or is_general


def _fallocate() -> "ctypes._NamedFuncPointer | None":
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    # glibc's plain one has a 32-bit offset on 32-bit machines; musl has one only, which has not.
    call = getattr(library, "fallocate64", None) or library.fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return call
