"""A small process that forks and execs on order, and signals and reaps: the floor of both.

Standard library only; run as a program. One letter on stdin orders, one line on stdout answers with
CLOCK_MONOTONIC in nanoseconds: for `s` from the child right before exec, for `r` after the reaping.
"""

import os
import signal
import struct
import time

CHILD = ("/bin/sleep", "sleep", "600")


def main() -> None:
    """Serve until stdin ends; the last child goes with it."""
    child = 0
    while order := os.read(0, 1):
        if order == b"s":
            child, at_ns = spawn()
        else:
            at_ns, child = reap(child), 0
        os.write(1, f"{at_ns}\n".encode())
    if child:
        reap(child)


def spawn() -> tuple[int, int]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, struct.pack("q", time.clock_gettime_ns(time.CLOCK_MONOTONIC)))
        os.execv(CHILD[0], CHILD[1:])
    os.close(writer)
    (at_ns,) = struct.unpack("q", os.read(reader, 8))
    os.close(reader)
    return child, at_ns


def reap(child: int) -> int:
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


if __name__ == "__main__":
    main()
