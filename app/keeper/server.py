"""The keeper's socket: who may connect, what a line asks for, and the loop that runs it all."""

import os
import socket
import struct
from collections.abc import Callable

from app.keeper import wire
from app.keeper.fence import Fence, boottime_ns
from app.keeper.linux import BootTimer
from app.keeper.loop import Loop
from app.keeper.processes import Processes
from app.keeper.records import Json, TaskKey
from app.keeper.task import Task
from app.keeper.wire import Refused

CONNECTIONS_MAX = 16

QUIET_S = 0.001

OUTPUT_BYTES_MAX = 64 * 1024 * 1024
"""What a client that does not read may leave here before it is cut off."""

Reply = Callable[[Json], None]


class Server:
    """Answers requests, and rings a bell in every connection when something happened."""

    def __init__(
        self, loop: Loop, listener: socket.socket, processes: Processes, fence: Fence
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._processes = processes
        self._fence = fence
        self._timer = BootTimer()
        self._connections: set[Connection] = set()
        self._starting: dict[TaskKey, Reply] = {}
        self._shutting_down: list[Reply] | None = None
        self.is_leaving = False
        self._verbs: dict[str, Callable[[Json, Reply], None]] = {
            "spawn": self._spawn,
            "stop": self._stop,
            "list": self._list,
            "forget": self._forget,
            "renew": self._renew,
            "shutdown": self._shutdown,
        }
        processes.tell = self._told

    def run(self) -> None:
        """Until told to leave. A fence that a predecessor let expire is noticed at once."""
        self._loop.watch(self._listener.fileno(), self._accept)
        self._loop.watch(self._timer.fd, self._fence_due)
        self._timer.arm(self._fence.deadline_ns)
        while not self.is_leaving:
            self._turn()
            self._processes.step()
            self._leave_when_empty()
        self._processes.leave()

    def _turn(self) -> None:
        """Wait and call back; a spare child is made when nothing has come for a moment.

        At once would be the wrong time: the fork would keep a processor from the program that
        was just started, and from the client that waits for the answer.
        """
        due_s, launcher = self._processes.due_in_s(), self._processes.launcher
        if not launcher.wants_spare:
            self._loop.turn(due_s)
        elif not self._loop.turn(QUIET_S if due_s is None else min(due_s, QUIET_S)):
            launcher.prepare()

    def request(self, line: bytes, send: Reply) -> None:
        """Do what a line asks for; whatever it says, somebody gets an answer."""
        number: object = None

        def reply(answer: Json) -> None:
            send({"id": number, "ok": True, **answer})

        try:
            request = wire.decode(line)
            number = wire.request_id(request)
            verb = self._verbs.get(str(request["do"]))
            if verb is None:
                raise Refused("unknown_verb", "no such verb")
            verb(request, reply)
        except Refused as refused:
            reply(refused.answer)
        except OSError as error:
            reply({"ok": False, "code": "system", "detail": error.strerror, "errno": error.errno})

    def closed(self, connection: "Connection") -> None:
        self._connections.discard(connection)

    def _spawn(self, request: Json, reply: Reply) -> None:
        if self._shutting_down is not None:
            raise Refused("leaving", "this keeper is shutting down")
        spec = wire.spec_of(request)
        self._processes.spawn(spec)
        self._starting[spec.key] = reply

    def _stop(self, request: Json, reply: Reply) -> None:
        task = self._processes.tasks.get(wire.task_key(request))
        if task is None:
            raise Refused("unknown_task", "no such task")
        self._processes.stop(task, wire.seconds(request, "grace_s"))
        reply({"state": task.state})

    def _list(self, request: Json, reply: Reply) -> None:
        reply(
            {
                "protocol": wire.PROTOCOL,
                "pid": os.getpid(),
                "fence": self._fence_view(),
                "tasks": [task.view() for task in self._processes.tasks.values()],
            }
        )

    def _forget(self, request: Json, reply: Reply) -> None:
        self._processes.forget(wire.task_key(request))
        reply({})

    def _renew(self, request: Json, reply: Reply) -> None:
        fence_s = wire.seconds(request, "fence_s")
        sent_at_ns = wire.integer(request, "sent_at_boottime_ns")
        if sent_at_ns > boottime_ns():
            raise Refused("malformed", "sent_at_boottime_ns: lies in the future")
        renewed = self._fence.renew(round(fence_s * 1e9), sent_at_ns)
        self._timer.arm(self._fence.deadline_ns)
        reply({"renewed": renewed, **self._fence_view()})

    def _shutdown(self, request: Json, reply: Reply) -> None:
        live = [task for task in self._processes.tasks.values() if task.is_open]
        if live and not wire.flag(request, "stop_all"):
            raise Refused("tasks_live", f"{len(live)} tasks still have a process")
        grace_s = None if request.get("grace_s") is None else wire.seconds(request, "grace_s")
        self._shutting_down = [*(self._shutting_down or []), reply]
        for task in live:
            own_s = task.record.grace_s
            self._processes.stop(task, own_s if grace_s is None else min(grace_s, own_s))

    def _told(self, event: str, task: Task) -> None:
        reply = self._starting.pop(task.record.key, None)
        if reply is not None:
            reply(_start_answer(event, task))
        if event in ("started", "exited"):
            end = {"task": task.view()} if event == "exited" else {}
            self._ring({"event": event, **task.name(), **end})

    def _fence_due(self) -> None:
        self._timer.drain()
        if self._fence.is_open():
            return
        self._processes.stop_fenced()
        self._ring({"event": "fenced"})

    def _leave_when_empty(self) -> None:
        if self._shutting_down is None:
            return
        if any(task.is_open for task in self._processes.tasks.values()):
            return
        for reply in self._shutting_down:
            reply({})
        self.is_leaving = True

    def _ring(self, event: Json) -> None:
        for connection in list(self._connections):
            connection.send(event)

    def _fence_view(self) -> Json:
        return {
            "is_open": self._fence.is_open(),
            "sent_at_boottime_ns": self._fence.sent_at_ns,
            "deadline_boottime_ns": self._fence.deadline_ns,
        }

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            # Gone again, or no descriptor left; the listener stays readable in that case.
            return
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        uid = struct.unpack("iII", credentials)[1]
        if uid not in (0, os.geteuid()) or len(self._connections) >= CONNECTIONS_MAX:
            peer.close()
            return
        self._connections.add(Connection(peer, self._loop, self))


class Connection:
    """One client: lines in, lines out, never a wait."""

    def __init__(self, peer: socket.socket, loop: Loop, server: Server) -> None:
        self._peer = peer
        self._fd = peer.fileno()
        self._loop = loop
        self._server = server
        self._input = bytearray()
        self._output = bytearray()
        self._is_open = True
        self._wants_write = False
        peer.setblocking(False)
        loop.watch(self._fd, self._ready)

    def send(self, message: Json) -> None:
        """Write now, or later what the socket does not take."""
        if self._is_open:
            self._output += wire.encode(message)
            self._flush()

    def _ready(self) -> None:
        if self._output:
            self._flush()
        if self._is_open:
            self._receive()

    def _receive(self) -> None:
        try:
            received = self._peer.recv(256 * 1024)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self._close()
            return
        self._input += received
        self._take_lines(b"\n" in received)

    def _take_lines(self, has_line: bool) -> None:
        if has_line:
            *lines, rest = self._input.split(b"\n")
            self._input = rest
            for line in lines:
                self._server.request(bytes(line), self.send)
        if len(self._input) > wire.LINE_BYTES_MAX:
            self.send({"id": None, **Refused("too_long", "the line does not end").answer})
            self._close()

    def _flush(self) -> None:
        try:
            sent = self._peer.send(self._output)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close()
            return
        del self._output[:sent]
        if len(self._output) > OUTPUT_BYTES_MAX:
            self._close()
            return
        if self._wants_write != bool(self._output):
            self._wants_write = bool(self._output)
            self._loop.want_write(self._fd, self._wants_write)

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.unwatch(self._fd)
            self._peer.close()
            self._server.closed(self)


def _start_answer(event: str, task: Task) -> Json:
    if event == "started":
        record = task.record
        return {
            "pid": record.pid,
            "start_ticks": record.start_ticks,
            "exec_at_monotonic_ns": record.exec_at_monotonic_ns,
        }
    failure = task.ending.failure
    if event == "failed" and failure is not None:
        view = failure.view()
        return {"ok": False, "code": "failed", **view}
    return Refused("exists", "this task has a record already").answer
