"""A child process as its worker sees it: a socket for messages, a pipe for all that it prints.

Each child leads a session of its own. So Ctrl-C in the worker's terminal does not reach it, and
whatever it started can be killed with it. Whenever a child ends, what is left of its group is
killed: what a handler leaves running ends with it, unless it gave that a session of its own.

A child has the environment of its worker, but for the connection string of the store.
"""

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress

from blackboard.environment import handed_on
from blackboard.handlers import Source
from blackboard.runners import wire
from blackboard.runners.exits import when_ended
from blackboard.runners.prints import Tail
from blackboard.runners.watch import Watch

_MAIN = "import sys; sys.path[:] = {path!r}; from blackboard.runners.child import main; main()"
"""The path is handed over, so that a child finds just the modules its worker found, wherever
that had them from."""


_LEASE_RAN_OUT = "stopped: its lease ran out while the worker stood still"
_PIPE = 65536
"""What a pipe holds: one read of it takes all that was printed so far, and no endless stream of
output keeps the loop."""


class Child:
    """A process just started; `connect` before anything else. Raises OSError when it cannot be."""

    def __init__(self, source: Source, watch: Watch) -> None:
        self.source = source
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Once the process has ended: why, in words."""
        self.runs = 0
        """Handlers it was given to call."""
        self._watch = watch
        self._tail = Tail()
        self._process, self._socket, self._output = _spawn()
        self.pid = self._process.pid
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        watch.keep(self.pid)
        when_ended(self._process, self._has_ended)
        asyncio.get_running_loop().add_reader(self._output, self._drain)

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._socket)

    def let_run(self, run: wire.RunMessage, deadline: float) -> None:
        """Give it a handler to call. What was printed before belongs to no run."""
        self._drain()
        self._tail = Tail()
        self._watch.keep(self.pid, deadline)
        self.runs += 1
        self._send(run)

    def extend(self, deadline: float) -> None:
        if not self.ended.done():
            self._watch.keep(self.pid, deadline)

    def lose(self, reason: str) -> None:
        self._send(wire.LostMessage(reason))

    async def receive(self) -> wire.ToWorker | None:
        """Its next message, None when it is gone.

        Raises msgspec.MsgspecError or wire.TooLarge when what comes is no message.
        """
        assert self._reader is not None
        try:
            size = wire.size_of(await self._reader.readexactly(wire.HEAD))
            return wire.message_of(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def output(self) -> str:
        """The last of what it has printed by now."""
        self._drain()
        return self._tail.text()

    def rest(self) -> None:
        """Between two runs there is no deadline."""
        self._watch.keep(self.pid)

    def is_alive(self) -> bool:
        """Of an idle child, also when the loop has not heard yet: it has nothing to say, so its
        socket is readable only when it has ended.
        """
        if self.ended.done() or self._socket.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def kill(self) -> None:
        """End it and all that it started, at once."""
        if not self.ended.done():
            _kill_group(self.pid)

    async def gone(self, patience: float) -> bool:
        """Wait until it has ended, at most `patience` seconds, and let go of the socket."""
        await asyncio.wait([self.ended], timeout=patience)
        self.hang_up()
        return self.ended.done()

    def hang_up(self) -> None:
        """Close the socket. An idle child ends by that, in its own time."""
        if self._writer is not None:
            self._writer.close()
        else:
            self._socket.close()

    def _send(self, message: wire.ToChild) -> None:
        if self._writer is not None and not self.ended.done():
            self._writer.write(wire.frame(message))

    def _drain(self) -> None:
        if self._output < 0:
            return
        with suppress(BlockingIOError):
            data = os.read(self._output, _PIPE)
            self._tail.add(data)
            if not data:
                self._close_output()

    def _close_output(self) -> None:
        asyncio.get_running_loop().remove_reader(self._output)
        os.close(self._output)
        self._output = -1

    def _has_ended(self) -> None:
        _kill_group(self.pid)
        by_guard = self._watch.forget(self.pid)
        code = self._process.wait()
        self._drain()
        if self._output >= 0:
            self._close_output()
        if self._socket.fileno() >= 0:
            # What it still said can be read, and then there is an end, even if a process that
            # escaped from its session has the socket open.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RD)
        self.ended.set_result(_LEASE_RAN_OUT if by_guard else _how(code))


def _spawn() -> tuple[subprocess.Popen[bytes], socket.socket, int]:
    """The process, and the worker's ends of its socket and of its output."""
    ours, theirs = socket.socketpair()
    output, printed = os.pipe()
    main = _MAIN.format(path=sys.path)
    # -u, which holds for C's stdout too: what was printed is in the pipe before the result is in
    # the socket, and before a crash.
    python = [sys.executable, "-u", "-X", "faulthandler", "-c", main]
    try:
        # From the loop's own thread: the kernel kills the child when the thread that started it
        # ends.
        process = subprocess.Popen(  # noqa: S603 - our own program, no shell
            [*python, str(theirs.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            pass_fds=[theirs.fileno()],
            env=handed_on(os.environ),
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        os.close(output)
        raise
    finally:
        theirs.close()
        os.close(printed)
    os.set_blocking(output, False)
    ours.setblocking(False)
    return process, ours, output


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _how(code: int) -> str:
    if code >= 0:
        hint = "os._exit or sys.exit in the handler?"
        return f"the child process ended: exit code {code} ({hint})"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = " (out of memory?)" if -code == signal.SIGKILL else ""
    return f"the child process was killed by {name}{hint}"
