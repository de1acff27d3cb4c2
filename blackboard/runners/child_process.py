"""A child process, as the worker sees it.

A child has a socket for messages and a pipe for all that it prints. It leads a session of its own,
so Ctrl-C in the worker's terminal does not reach it, and it can be killed together with what it
started. When a child ends, the rest of its group is killed: a process that a handler leaves running
ends with it, unless the handler gave it a process group or session of its own. A child has the
environment of its worker, without the scheduler's own secrets.

A child is reaped by the code that waits for it. asyncio's own subprocesses are reaped the moment
they end; from then on the number may be another process's, whose group would be killed.
"""

import asyncio
import fcntl
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, suppress

import msgspec

from blackboard import __version__
from blackboard.handlers import code as loaded
from blackboard.handlers.handler import Source
from blackboard.phrases import LONGEST_LINE, cut_middle
from blackboard.runners import guard, wire
from blackboard.runners.commands import child_environment, how_it_ended
from blackboard.runners.guard_process import Watch, on_end
from blackboard.runners.interpreter import program, python
from blackboard.runners.output import Tail
from blackboard.runners.secrets import NOTHING

LEASE_RAN_OUT = (
    "stopped: its lease ran out before a renewal was answered, or while the worker stood still"
)
ASKED_TO_END = {-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}
"""Exit codes. Where a service or a session ends, its manager may send these signals to all of its
processes at once, also to those that have a session of their own."""
_PIPE = 65536
"""Bytes that a pipe holds: one read takes all that was printed so far, and endless output does not
occupy the loop."""

Receive = Callable[[wire.OfRun | Exception | None], None]
"""Gets the messages of a run; at last the error of an invalid message, or None when the child
has closed the socket.
"""


class _Connection(asyncio.Protocol):
    def __init__(
        self, receive: Callable[[wire.ToWorker | Exception | None], None], sock: socket.socket
    ) -> None:
        self._receive = receive
        self._socket = sock
        self._data = bytearray()

    def data_received(self, data: bytes) -> None:
        self._data += data
        try:
            for message in wire.messages_in(self._data):
                self._receive(message)
        except (msgspec.MsgspecError, wire.TooLong) as problem:
            self._data.clear()
            self._receive(problem)

    def eof_received(self) -> bool:
        self._receive(None)
        return True  # the child may go on, and this end stays open until `hang_up`

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:  # after a write that failed asyncio does not read what was sent before
            with suppress(OSError):
                while data := self._socket.recv(_PIPE):
                    self.data_received(data)
        self._receive(None)


class ChildProcess:
    """A child process, just started; call `connect` first. Raises OSError if it cannot start."""

    def __init__(self, source: Source, watch: Watch) -> None:
        self.source = source
        self.ended: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        """Its exit code, once it has ended; None where that is not known."""
        self.ready: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether it takes runs, once it does or has ended."""
        self.runs = 0
        """How many handlers it was given to call."""
        self._watch = watch
        self._tail = Tail()
        self._mask = NOTHING
        """The mask of all its runs so far: a thread that a run left may print in a later one."""
        self._process, self._socket, self._output = _spawn()
        self.pid = self._process.pid
        self._transport: asyncio.Transport | None = None
        self._receive: Receive | None = None
        self._is_closed = False
        """Whether it has closed the socket."""
        self._is_overdue = False
        """Whether the guard ended it."""
        self._readable = select.poll()
        for descriptor in (self._socket.fileno(), self._output):
            self._readable.register(descriptor, select.POLLIN)
        watch.keep(self.pid)
        on_end(self._process, self._has_ended)
        asyncio.get_running_loop().add_reader(self._output, self._drain)

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_unix_connection(
            lambda: _Connection(self._received, self._socket), sock=self._socket
        )
        self.send(wire.CodeMessage(loaded.code()))

    def let_run(self, run: wire.RunMessage, deadline: float, receive: Receive) -> None:
        """Gives it a handler to call. `receive` gets its messages until `rest` is called. Earlier
        output belongs to no run.
        """
        self._receive = receive
        self._drain()
        self._tail = Tail()
        self._mask = self._mask.joined(run.secrets)
        self._watch.keep(self.pid, deadline)
        self.runs += 1
        self.send(run)
        if self._is_closed:
            receive(None)

    def extend(self, deadline: float) -> None:
        if not self.ended.done():
            self._watch.keep(self.pid, deadline)

    def output(self) -> str:
        """The last bytes that it has printed by now, as text, masked."""
        self._drain()
        return self._mask.output(self._tail.text())

    def rest(self) -> None:
        """Removes the deadline, until the next run."""
        self._receive = None
        self._watch.keep(self.pid)

    @property
    def is_ready(self) -> bool:
        """Whether it has begun to take runs."""
        return self.ready.done() and self.ready.result()

    def _set_ready(self, *, is_ready: bool) -> None:
        if not self.ready.done():
            self.ready.set_result(is_ready)

    def is_alive(self) -> bool:
        """Whether an idle child runs. It sends nothing, so its socket is readable only when it has
        ended, also before the loop takes notice.
        """
        place = self._socket.fileno()
        return not self.ended.done() and place >= 0 and place not in dict(self._readable.poll(0))

    def kill(self) -> None:
        """Ends it and all that it started, at once."""
        if not self.ended.done():
            guard.kill(self.pid)

    async def gone(self, seconds: float) -> bool:
        """Waits for its end, at most `seconds`, and closes the socket. Returns whether it ended."""
        await asyncio.wait([self.ended], timeout=seconds)
        self.hang_up()
        return self.ended.done()

    async def leave(self, seconds: float) -> str:
        """Lets an idle child end by itself, which closes resources and sends the last spans; kills
        it after so many seconds. Returns what went wrong; "" if nothing did. `ASKED_TO_END` is
        nothing wrong.
        """
        self._receive = None
        self.hang_up()
        if await self.gone(seconds):
            is_good = self.ended.result() in {0, None, *ASKED_TO_END}
            return "" if is_good else self.reason()
        self.kill()
        await self.gone(seconds)
        reason = "resources that do not close, or a thread that is no daemon?"
        return f"it did not end within {seconds:g} s ({reason})"

    def hang_up(self) -> None:
        """Closes the socket, which ends an idle child."""
        if self._transport is not None:
            self._transport.close()
        else:
            self._socket.close()

    def send(self, message: wire.ToChild) -> None:
        if self._transport is not None and not self.ended.done():
            self._transport.write(wire.frame(message))

    def _received(self, message: wire.ToWorker | Exception | None) -> None:
        if message is None:
            self._is_closed = True
            self._set_ready(is_ready=False)
        if isinstance(message, wire.ReadyMessage):
            self._set_ready(is_ready=True)
        elif self._receive is not None:
            self._receive(message)

    def _drain(self) -> None:
        if self._output < 0 or self._output not in dict(self._readable.poll(0)):
            return
        data = os.read(self._output, _PIPE)
        self._tail.add(data)
        if not data:
            self._close_output()

    def _close_output(self) -> None:
        asyncio.get_running_loop().remove_reader(self._output)
        os.close(self._output)
        self._output = -1

    def _has_ended(self) -> None:
        guard.kill(self.pid)
        self._is_overdue = self._watch.forget(self.pid)
        code = _exit_code(self._process)
        self._drain()
        if self._output >= 0:
            self._close_output()
        if self._socket.fileno() >= 0:
            # Messages that it has sent can still be read. Then comes the end, even if a process
            # that left its session has the socket open.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RD)
        self.ended.set_result(code)

    def reason(self) -> str:
        """Why it has ended, once all that it has sent is read."""
        code = self.ended.result()
        if self._is_overdue:
            return LEASE_RAN_OUT
        if code is not None and code < 0:
            hint = " (out of memory?)" if -code == signal.SIGKILL else ""
            return f"the child process was {how_it_ended(code)}{hint}"
        how = "" if code is None else f": {how_it_ended(code)}"
        hint = " (os._exit in the handler?)" if self._receive is not None else ""
        last = cut_middle(self.output().rstrip().rpartition("\n")[2], LONGEST_LINE)
        printed = f"; it printed last: {last}" if last else ""
        return f"the child process ended{how}{hint}{printed}"


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a process that has ended; None where it is not known: this program ignores
    SIGCHLD, or other code has reaped the process. (`process.wait` says 0 then.)
    """
    if process.returncode is None:
        try:
            status = os.waitpid(process.pid, 0)[1]
        except ChildProcessError:
            process.returncode = 0  # so that it is not waited for again
            return None
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode


def _spawn() -> tuple[subprocess.Popen[bytes], socket.socket, int]:
    """The process, and the worker's ends of its socket and of its output pipe."""
    main = program("from blackboard.runners.child_main import main; main()")
    # -u, also for C's stdout: output is in the pipe before the result is in the socket, and before
    # a crash.
    command = python("-u", "-X", "faulthandler", "-c", main)
    with ExitStack() as kept, ExitStack() as passed:
        ours, pair = socket.socketpair()
        kept.callback(ours.close)
        with pair:  # 0 to 2 are free where this program has closed its own: the child's are others
            theirs = socket.socket(fileno=fcntl.fcntl(pair.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))
        passed.callback(theirs.close)
        output, printed = os.pipe()
        kept.callback(os.close, output)
        passed.callback(os.close, printed)
        # In the loop's own thread: the kernel kills the child when the thread that started it ends.
        process = subprocess.Popen(  # noqa: S603 - our own program, no shell
            [*command, str(theirs.fileno()), str(os.getpid()), __version__],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            pass_fds=[theirs.fileno()],
            env=child_environment(os.environ),
            start_new_session=True,
        )
        kept.pop_all()
    os.set_blocking(output, False)
    ours.setblocking(False)
    return process, ours, output
