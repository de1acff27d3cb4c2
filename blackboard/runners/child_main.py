"""The main program of a child process: calls plain handlers, one after the other.

Results, errors and log lines are masked and cut here, so that this takes time of their own run
alone.

The handler runs on the main thread, which signal handlers and some libraries require. A second
thread listens to the worker, so that `ctx.lost` and `ctx.stopping` can become true meanwhile.

A child never outlives its worker: the kernel kills it when the worker dies (Linux), it ends itself
when the socket closes, and the guard ends it from outside. It is started as `main()` with three
arguments: the socket's descriptor, and the process id and the version of the worker. Where another
version was installed meanwhile it ends at once: its messages may be others.
"""

import functools
import itertools
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import copy_context
from io import TextIOWrapper
from typing import Any

import msgspec

from blackboard import __version__
from blackboard.clock import SystemClock
from blackboard.errors import BlackboardError, LeaseLost
from blackboard.handlers import code as loaded
from blackboard.handlers.handler import Handler
from blackboard.handlers.params import with_params
from blackboard.handlers.registry import find_handler
from blackboard.model import Ended, Outcome
from blackboard.runners import wire
from blackboard.runners.handler_run import OVER, RunReport, context_of
from blackboard.runners.interpreter import die_with, reset_signals
from blackboard.runners.leftovers import OF_RESOURCES, State, first_state, left, state
from blackboard.runners.logs import Logged, emitting_info, kept_logs
from blackboard.runners.outcome import GOOD_EXIT, ended_by, fitting_result, name_of
from blackboard.runners.resources import ProcessResources
from blackboard.runners.secrets import NOTHING, Mask
from blackboard.runners.signals import ThreadSignal

Signals = Mapping[wire.SignalName, ThreadSignal]


def _new_signals() -> Signals:
    return {"lost": ThreadSignal(), "stopping": ThreadSignal()}


class ChildLoop:
    """Serves the child's end of the socket."""

    def __init__(self, worker: socket.socket) -> None:
        self._socket = worker
        self._busy = threading.Event()
        self._saves = itertools.count(1)
        self._saving: dict[int, queue.SimpleQueue[wire.SavedMessage]] = {}
        """The queue of each save that waits for its answer, by the number of the save."""
        self._runs: queue.SimpleQueue[tuple[wire.RunMessage, Signals] | None] = queue.SimpleQueue()
        self._pid = os.getpid()
        self._resources = ProcessResources()
        self._types = set[str]()
        self._mask = NOTHING
        """The mask of all runs so far: a thread that one has left may log and print later."""
        self._is_traced = False
        """Whether a run was traced: spans are sent by a thread of this process."""
        self._before: State = {}
        """The state of this process between two runs."""

    def serve(self) -> None:
        """Calls handlers until the worker closes the socket."""
        threading.Thread(target=self._listen, name="worker", daemon=True).start()
        self._send(wire.ReadyMessage())
        while (given := self._runs.get()) is not None:
            finished = self._perform(*given)
            self._busy.clear()
            self._socket.sendall(wire.frame(finished, largest=wire.LARGEST_ANSWER))
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
                        self._answer(saved)
        if self._busy.is_set():
            os.killpg(0, signal.SIGKILL)  # the worker has ended, and this run with it
        self._runs.put(None)

    def _perform(self, run: wire.RunMessage, signals: Signals) -> wire.FinishedMessage:
        data, mask = run.data, Mask(run.secrets)
        self._mask = self._mask.joined(run.secrets)
        report = RunReport(mask, limit=data.limit, send=self._send)
        handler, begun = None, SystemClock().monotonic()
        try:
            handler = _handler_of(run.source, data.item.type)
            begun = SystemClock().monotonic()
            called = run.called
            if called is None:
                called = begun
                self._send(wire.CalledMessage())
            spans = self._spans(data.trace, mask)
            context = context_of(
                data,
                report,
                called=called,
                save=functools.partial(self._save, report),
                lost=signals["lost"],
                stopping=signals["stopping"],
                resources=self._opened(handler),
            )
            item = with_params(data.item, handler.params)
            with spans, kept_logs(functools.partial(self._log, report)):
                value = None
                with GOOD_EXIT:
                    value = copy_context().run(handler.function, item, context)
            result = msgspec.Raw(fitting_result(value, mask, limit=data.limit))
            del value  # which closes what it holds open
            ended = Ended(outcome=Outcome.OK, result=result)
        except BaseException as problem:  # noqa: BLE001 - sys.exit ends a run, not the child
            ended = ended_by(problem, mask)
        if os.getpid() != self._pid:
            os._exit(0)  # a process that the handler forked, in which it has returned
        self._end(report)
        # After a failed run this process is not used again.
        leftovers = self._left(handler) if ended.outcome is Outcome.OK else []
        return wire.FinishedMessage(
            ended=ended, left=leftovers, took=SystemClock().monotonic() - begun
        )

    def _end(self, report: RunReport) -> None:
        """Drops all that this run reports from now on. A save that still waits raises LeaseLost."""
        report.end()
        for number in list(self._saving):
            self._answer(wire.SavedMessage(number=number, lost=OVER))

    def _spans(self, carrier: Mapping[str, str], mask: Mask) -> AbstractContextManager[None]:
        """Makes the span of a run the current one, where runs are traced."""
        if not carrier:
            return nullcontext()
        from blackboard.runners.tracing import within  # noqa: PLC0415 - slow to import, and seldom needed

        self._is_traced = True
        return within(carrier, mask)

    def _opened(self, handler: Handler) -> Any:
        """The resources of a handler. The state is read again when its type is used for the first
        time: the import of its module, and opening resources, are no changes that a run made.
        """
        is_new = handler.type not in self._types
        try:
            resources = self._resources.of(handler.type, handler.resources)
            self._types.add(handler.type)
        finally:
            if is_new:
                with suppress(OSError):  # no /proc, or no descriptor: `_left` says so
                    self._before = first_state()
        return resources

    def _left(self, handler: Handler | None) -> list[str]:
        """What the run left behind. Not counted: files, threads and processes where the handler has
        resources, which may need them, and one socket where runs are traced, to send spans.
        """
        try:
            kinds = left(self._before, own_sockets=1 if self._is_traced else 0)
            if handler is not None and handler.resources is not None:
                self._before = state()
                return [kind for kind in kinds if kind not in OF_RESOURCES]
        except Exception as problem:  # noqa: BLE001 - the run has ended well, whatever it left
            return [f"what cannot be looked at ({name_of(problem)}: {problem})"]
        return kinds

    def _log(self, report: RunReport, logged: Logged) -> None:
        report.send(wire.LogMessage(logged.masked(self._mask)))

    def _save(self, report: RunReport, value: Any) -> None:
        message = wire.SaveMessage(number=next(self._saves), checkpoint=report.checkpoint(value))
        answer = self._saving[message.number] = queue.SimpleQueue()
        try:
            saved = answer.get() if report.send(message) else wire.SavedMessage(number=0, lost=OVER)
        finally:
            self._saving.pop(message.number, None)
        if saved.lost:
            raise LeaseLost(saved.lost)
        if saved.error:
            raise BlackboardError(saved.error)

    def _answer(self, saved: wire.SavedMessage) -> None:
        waiting = self._saving.pop(saved.number, None)
        if waiting is not None:
            waiting.put(saved)

    def _send(self, message: wire.ReadyMessage | wire.OfRun) -> None:
        self._socket.sendall(wire.frame(message, largest=wire.LARGEST_ANSWER))


_handler_of = functools.cache(find_handler)


def main() -> None:
    descriptor, worker, version = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    die_with(worker)
    if version != __version__:
        sys.exit(f"blackboard {__version__} is installed, and this worker is {version}: restart it")
    reset_signals(signal.valid_signals())
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    with emitting_info(), socket.socket(fileno=descriptor) as connection:
        connection.set_inheritable(False)
        ChildLoop(connection).serve()
