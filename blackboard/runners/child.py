"""The main program of a child process: calls plain handlers, one after the other.

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
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

import msgspec

from blackboard.context import Context, HandlerItem, run_logger
from blackboard.registry import find_handler
from blackboard.runners import wire
from blackboard.runners.ending import Unfit, encode_result, failure, readable

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


class Child:
    """The child's end of the socket, and what it does with what comes."""

    def __init__(self, worker: socket.socket) -> None:
        self._socket = worker
        self._sending = threading.Lock()
        self._busy = threading.Event()
        self._runs: queue.SimpleQueue[tuple[wire.Run, LostSignal] | None] = queue.SimpleQueue()
        self._pid = os.getpid()
        self._home = Path.cwd()
        self._find = functools.cache(find_handler)

    def serve(self) -> None:
        """Call handlers until the worker lets go of the child."""
        threading.Thread(target=self._listen, name="worker", daemon=True).start()
        while (given := self._runs.get()) is not None:
            finished = self._perform(*given)
            if os.getpid() != self._pid:
                os._exit(0)  # a fork that the handler made and let return: not ours to answer for
            self._busy.clear()
            self._finish(finished)

    def _listen(self) -> None:
        lost = LostSignal()
        with self._socket.makefile("rb") as stream:
            while (message := wire.read(stream)) is not None:
                match message:
                    case wire.Run() as run:
                        lost = LostSignal()
                        self._busy.set()
                        self._runs.put((run, lost))
                    case wire.Lost(reason):
                        lost.set(reason)
        if self._busy.is_set():
            os.killpg(0, signal.SIGKILL)  # the worker is gone: nobody waits for this run
        self._runs.put(None)

    def _perform(self, run: wire.Run, lost: LostSignal) -> wire.Finished:
        threads = threading.active_count()
        try:
            handler = self._find(run.source, run.type)
            threads = threading.active_count()
            context = Context(
                due=run.due,
                fence=run.fence,
                attempt=run.attempt,
                worker=run.worker,
                fenced=run.fenced,
                settings=run.settings,
                log=run_logger(self._log),
                lost=lost,
                progress=self._progress,
            )
            item = HandlerItem(run.id, run.type, run.params, run.timezone, run.written)
            value = handler.function(item, context)
            result = msgspec.Raw(encode_result(value))
        except BaseException as problem:  # noqa: BLE001 - sys.exit ends a run, not the child
            return wire.Finished(error=failure(problem), clean=self._is_clean(threads))
        return wire.Finished(result=result, clean=self._is_clean(threads))

    def _is_clean(self, threads: int) -> bool:
        """Whether another run may follow in this process: the handler left no thread, no process
        and no other working folder behind.
        """
        with suppress(OSError):
            return (
                threading.active_count() <= threads
                and not _has_children()
                and Path.cwd() == self._home
            )
        return False

    def _finish(self, finished: wire.Finished) -> None:
        try:
            self._send(finished)
        except wire.TooLarge as problem:
            advice = "write it to a file or a blob and return where it is"
            error = failure(Unfit(f"the handler's result is too large: {problem}; {advice}"))
            self._send(wire.Finished(error=error, clean=finished.clean))

    def _log(self, level: int, message: str) -> None:
        self._send(wire.Log(level, readable(message)))

    def _progress(self, done: int, total: int) -> None:
        self._send(wire.Progress(int(done), int(total)))

    def _send(self, message: wire.ToWorker) -> None:
        data = wire.frame(message)
        with self._sending:  # a handler's threads may log, too
            self._socket.sendall(data)


def _has_children() -> bool:
    if sys.platform != "linux":
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


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
        Child(connection).serve()
