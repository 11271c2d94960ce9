"""A port that stays ours while the program that serves on it is started again."""

import socket


def reserve_port(port: int) -> socket.socket:
    """A bound socket that never listens; 0 takes a free port. Raises OSError when it is taken."""
    if port:
        # Without SO_REUSEPORT first: with it, another cluster's controller would share its port.
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(("127.0.0.1", port))
    return reserved


def port_of(reserved: socket.socket) -> int:
    return int(reserved.getsockname()[1])
