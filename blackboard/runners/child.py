"""The main program of a child process: calls plain handlers, one after the other.

Results, errors and log lines are masked and cut here, at the cost of their own run alone.

The handler runs on the main thread, which signal handlers and some libraries require. A second
thread listens to the worker, so that `ctx.lost` and `ctx.stopping` can become true meanwhile.

A child never outlives its worker: the kernel kills it when the worker dies (Linux), it ends itself
when the socket closes, and the guard ends it from outside. Started as `child.main()` with two
arguments, the socket's descriptor and the worker's process id.
"""

import ctypes
import functools
import itertools
import logging
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from io import TextIOWrapper
from typing import Any

import msgspec

from blackboard.errors import BlackboardError, LeaseLost
from blackboard.handlers import code as loaded
from blackboard.handlers.context import Context, progress_of
from blackboard.handlers.handler import Handler
from blackboard.handlers.params import with_params
from blackboard.handlers.registry import find_handler
from blackboard.model import Ended, Outcome
from blackboard.runners import wire
from blackboard.runners.leftovers import OF_RESOURCES, State, left, state
from blackboard.runners.logs import Send, emitting_info, kept_logs, run_logger
from blackboard.runners.output import (
    ended_by,
    fitting_checkpoint,
    fitting_result,
    fitting_warning,
)
from blackboard.runners.resources import ProcessResources
from blackboard.runners.secrets import Mask
from blackboard.runners.signals import ThreadSignal

_PR_SET_PDEATHSIG = 1

Signals = Mapping[str, ThreadSignal]
"""By the name that `ctx` has for it."""


def _new_signals() -> Signals:
    return {"lost": ThreadSignal(), "stopping": ThreadSignal()}


class ChildLoop:
    """Serves the child's end of the socket."""

    def __init__(self, worker: socket.socket) -> None:
        self._socket = worker
        self._sending = threading.Lock()
        self._busy = threading.Event()
        self._saving = threading.Lock()
        self._saves = itertools.count(1)
        self._saved: queue.SimpleQueue[wire.SavedMessage] = queue.SimpleQueue()
        self._runs: queue.SimpleQueue[tuple[wire.RunMessage, Signals] | None] = queue.SimpleQueue()
        self._pid = os.getpid()
        self._resources = ProcessResources()
        self._types = set[str]()
        self._is_traced = False
        """Whether a run was traced: spans are sent by a thread of this process."""
        self._before: State = {}
        """The state of this process between two runs."""

    def serve(self) -> None:
        """Calls handlers until the worker closes the socket."""
        threading.Thread(target=self._listen, name="worker", daemon=True).start()
        while (given := self._runs.get()) is not None:
            finished = self._perform(*given)
            if os.getpid() != self._pid:
                os._exit(0)  # a fork that the handler made, and that has returned
            self._busy.clear()
            self._send(finished)
        self._resources.close()
        if self._is_traced:
            from blackboard.runners.tracing import LAST_EXPORT, last_export  # noqa: PLC0415 - loaded by then

            last_export().join(LAST_EXPORT)

    def _listen(self) -> None:
        signals = _new_signals()
        with self._socket.makefile("rb") as stream:
            while (message := wire.read_message(stream)) is not None:
                match message:
                    case wire.CodeMessage(code):
                        loaded.install(code)
                    case wire.RunMessage() as run:
                        signals = _new_signals()
                        self._busy.set()
                        self._runs.put((run, signals))
                    case wire.SignalMessage(name, reason):
                        signals[name].set(reason)
                    case wire.SavedMessage() as saved:
                        self._saved.put(saved)
        if self._busy.is_set():
            os.killpg(0, signal.SIGKILL)  # the worker has ended, and this run with it
        self._runs.put(None)

    def _perform(self, run: wire.RunMessage, signals: "Signals") -> wire.FinishedMessage:
        mask = Mask(run.secrets)
        try:
            spans = self._spans(run.trace, mask)
            handler = _found(run.source, run.item.type)
            log = run_logger(self._logs(mask))
            context = Context(
                due=run.due,
                fence=run.fence,
                attempt=run.attempt,
                worker=run.worker,
                fenced=run.fenced,
                settings=run.settings,
                log=log,
                lost=signals["lost"],
                stopping=signals["stopping"],
                progress=self._progress,
                warn=functools.partial(self._warn, mask, log),
                checkpoint=run.checkpoint,
                resources=self._opened(handler),
                save=functools.partial(self._save, mask, run.limit),
            )
            with spans, kept_logs(self._logs(mask), everywhere=True):
                value = copy_context().run(
                    handler.function, with_params(run.item, handler.params), context
                )
            result = msgspec.Raw(fitting_result(value, mask, limit=run.limit))
            del value  # which closes what it holds open
            ended = Ended(outcome=Outcome.OK, result=result)
        except BaseException as problem:  # noqa: BLE001 - sys.exit ends a run, not the child
            ended = ended_by(problem, mask)
        # After a failed run this process is not used again.
        found = self._left(handler) if ended.outcome is Outcome.OK else []
        return wire.FinishedMessage(ended=ended, left=found)

    def _spans(self, carrier: Mapping[str, str], mask: Mask) -> AbstractContextManager[None]:
        """Makes the span of a run the current one, where runs are traced."""
        if not carrier:
            return nullcontext()
        from blackboard.runners.tracing import within  # noqa: PLC0415 - slow to import, and seldom needed

        self._is_traced = True
        return within(carrier, mask)

    def _opened(self, handler: Handler) -> Any:
        """The resources of a handler. The import of its module, and opening them, are no changes
        that a run made.
        """
        resources = self._resources.of(handler.type, handler.resources)
        if handler.type not in self._types:
            self._types.add(handler.type)
            self._before = state()
        return resources

    def _left(self, handler: Handler) -> list[str]:
        """What the run left behind. Resources may open files, and start threads and processes; so
        does what sends spans.
        """
        found = left(self._before)
        if handler.resources is None and not self._is_traced:
            return found
        self._before = state()
        return [one for one in found if one not in OF_RESOURCES]

    def _logs(self, mask: Mask) -> Send:
        return lambda logged: self._send(wire.LogMessage(logged.masked(mask)))

    def _warn(self, mask: Mask, log: logging.Logger, text: str) -> None:
        self._send(wire.WarnMessage(fitting_warning(text, mask)))
        log.warning("%s", text)

    def _progress(self, done: int, total: int) -> None:
        self._send(wire.ProgressMessage(*progress_of(done, total)))

    def _save(self, mask: Mask, limit: int, value: Any) -> None:
        checkpoint = fitting_checkpoint(value, mask, limit=limit)
        with self._saving:  # a handler's threads may save, too
            number = next(self._saves)
            self._send(wire.SaveMessage(number, checkpoint))
            saved = self._saved.get()
            while saved.number != number:  # it came after the run that it was for
                saved = self._saved.get()
        if saved.lost:
            raise LeaseLost(saved.lost)
        if saved.error:
            raise BlackboardError(saved.error)

    def _send(self, message: wire.ToWorker) -> None:
        data = wire.frame(message, largest=wire.LARGEST_ANSWER)
        with self._sending:  # a handler's threads may log, too
            self._socket.sendall(data)


_found = functools.cache(find_handler)


def _die_with(worker: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:  # it died before that call
        os._exit(1)


def main() -> None:
    descriptor, worker = int(sys.argv[1]), int(sys.argv[2])
    _die_with(worker)
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    with emitting_info(), socket.socket(fileno=descriptor) as connection:
        connection.set_inheritable(False)
        ChildLoop(connection).serve()
