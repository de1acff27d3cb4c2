"""The main program of a child process: calls plain handlers, one after the other.

Results, errors and log lines are masked and cut here, at the cost of their own run alone. After a
run that failed, or left something behind (see `leftovers.py`), the worker ends this process.

The handler runs on the main thread, where Python code expects to be: signals, and libraries that
insist on it. A second thread listens to the worker, so that `ctx.lost` can become true meanwhile.

A child never outlives its worker: the kernel kills it when the worker dies (Linux), it ends
itself when the socket does, and the guard does the same from outside. Started as
`child.main()` with two arguments, the socket's descriptor and the worker's process id.
"""

import ctypes
import functools
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from io import TextIOWrapper

import msgspec

from blackboard.context import Context, HandlerItem, progress_of, run_logger
from blackboard.handlers import Handler, Source, find_handler
from blackboard.runners import leftovers, wire
from blackboard.runners.ending import failure, fitting_result, readable
from blackboard.runners.secrets import Mask

_PR_SET_PDEATHSIG = 1


class LostSignal:
    """`ctx.lost` of a plain handler."""

    def __init__(self) -> None:
        self.reason = ""
        self._event = threading.Event()

    def set(self, reason: str) -> None:
        self.reason = reason
        self._event.set()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._event.wait(timeout)


class ChildLoop:
    """The child's end of the socket, and what it does with what comes."""

    def __init__(self, worker: socket.socket) -> None:
        self._socket = worker
        self._sending = threading.Lock()
        self._busy = threading.Event()
        self._runs: queue.SimpleQueue[tuple[wire.RunMessage, LostSignal] | None] = (
            queue.SimpleQueue()
        )
        self._pid = os.getpid()

    def serve(self) -> None:
        """Call handlers until the worker lets go of the child."""
        threading.Thread(target=self._listen, name="worker", daemon=True).start()
        while (given := self._runs.get()) is not None:
            finished = self._perform(*given)
            if os.getpid() != self._pid:
                os._exit(0)  # a fork that the handler made and let return: not ours to answer for
            self._busy.clear()
            self._send(finished)

    def _listen(self) -> None:
        lost = LostSignal()
        with self._socket.makefile("rb") as stream:
            while (message := wire.read(stream)) is not None:
                match message:
                    case wire.RunMessage() as run:
                        lost = LostSignal()
                        self._busy.set()
                        self._runs.put((run, lost))
                    case wire.LostMessage(reason):
                        lost.set(reason)
        if self._busy.is_set():
            os.killpg(0, signal.SIGKILL)  # the worker is gone: nobody waits for this run
        self._runs.put(None)

    def _perform(self, run: wire.RunMessage, lost: LostSignal) -> wire.FinishedMessage:
        mask = Mask(run.secrets)
        try:
            handler, before = _found(run.source, run.type)
            context = Context(
                due=run.due,
                fence=run.fence,
                attempt=run.attempt,
                worker=run.worker,
                fenced=run.fenced,
                settings=run.settings,
                log=run_logger(self._logs(mask)),
                lost=lost,
                progress=self._progress,
            )
            item = HandlerItem(run.id, run.type, run.params, run.timezone, run.written)
            value = copy_context().run(handler.function, item, context)
            result = msgspec.Raw(fitting_result(value, mask, limit=run.limit))
            del value  # what it holds open is closed
            return wire.FinishedMessage(result=result, left=leftovers.left(before))
        except BaseException as problem:  # noqa: BLE001 - sys.exit ends a run, not the child
            return wire.FinishedMessage(error=mask.short(failure(problem)))

    def _logs(self, mask: Mask) -> Callable[[int, str], None]:
        def log(level: int, message: str) -> None:
            self._send(wire.Log(level, mask.short(readable(message))))

        return log

    def _progress(self, done: int, total: int) -> None:
        self._send(wire.Progress(*progress_of(done, total)))

    def _send(self, message: wire.ToWorker) -> None:
        data = wire.frame(message, largest=wire.LARGEST_SAID)
        with self._sending:  # a handler's threads may log, too
            self._socket.sendall(data)


@functools.cache
def _found(source: Source, type_: str) -> tuple[Handler, leftovers.State]:
    """A handler, and how this process was before it was first called. What its module did when it
    was imported is no handler's doing, and stays.
    """
    return find_handler(source, type_), leftovers.state()


def _die_with(worker: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:  # it died before we asked
        os._exit(1)


def main() -> None:
    descriptor, worker = int(sys.argv[1]), int(sys.argv[2])
    _die_with(worker)
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    with socket.socket(fileno=descriptor) as connection:
        connection.set_inheritable(False)
        ChildLoop(connection).serve()
