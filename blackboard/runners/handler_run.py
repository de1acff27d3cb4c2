"""The handler's side of a run, the same in every runner: its `ctx`, and what it reports.

What a handler reports is masked and cut where it runs, and goes on as a message of `wire.py`. It
belongs to its run: a thread that goes on after the end of its run reports and saves nothing, also
where its process calls another handler by then. A process that a handler forks cannot report or
save either.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from blackboard.clock import SystemClock
from blackboard.errors import BlackboardError, LeaseLost
from blackboard.handlers.context import Context, Signal, progress_of
from blackboard.runners import wire
from blackboard.runners.logs import Logged, RunLogger
from blackboard.runners.outcome import fitting_checkpoint, fitting_warning
from blackboard.runners.runner import RunData
from blackboard.runners.secrets import Mask

OVER = "the run is over"


class RunReport:
    """Sends what one run reports, from any thread. `send` gets one message at a time."""

    def __init__(self, mask: Mask, *, limit: int, send: Callable[[Any], None]) -> None:
        self._mask = mask
        self._limit = limit
        self._send: Callable[[Any], None] | None = send
        self._pid = os.getpid()
        self._sending = threading.RLock()
        """Reentrant: a finalizer or a signal handler may log while its thread sends; that message
        waits until the other one is sent."""
        self._waiting = deque[Any]()
        self._is_sending = False

    def end(self) -> None:
        """Drops all messages from now on."""
        with self._sending:
            self._send = None

    def send(self, message: wire.Reported | wire.SaveMessage) -> bool:
        """Returns whether it was sent: once the run is over it is dropped. Raises BlackboardError
        in a fork of the handler's process.
        """
        self._check_process()
        with self._sending:
            if self._send is None:
                return False
            self._waiting.append(message)
            while self._waiting and not self._is_sending:
                self._is_sending = True
                try:
                    while self._waiting:
                        self._send(self._waiting.popleft())
                finally:
                    self._is_sending = False
            return True

    def log(self, logged: Logged) -> None:
        self.send(wire.LogMessage(logged.masked(self._mask)))

    def warn(self, log: logging.Logger, text: str) -> None:
        self.send(wire.WarnMessage(fitting_warning(text, self._mask)))
        log.warning("%s", text)

    def progress(self, done: int, total: int) -> None:
        self.send(wire.ProgressMessage(*progress_of(done, total)))

    def checkpoint(self, value: Any) -> str:
        """What the handler saves, as JSON. Raises Unfit, LeaseLost when the run is over, and
        BlackboardError in a fork of the handler's process.
        """
        self._check_process()
        if self._send is None:
            raise LeaseLost(OVER)
        return fitting_checkpoint(value, self._mask, limit=self._limit)

    def _check_process(self) -> None:
        """Raises BlackboardError in a fork: the connection to the worker is not its own."""
        if self._pid != os.getpid():
            problem = "ctx reports and saves from the handler's own process, not from one it forks"
            raise BlackboardError(problem)


def context_of(
    data: RunData,
    report: RunReport,
    *,
    called: float = 0.0,
    save: Callable[[Any], Any],
    lost: Signal,
    stopping: Signal,
    resources: Any = None,
) -> Context:
    """The `ctx` of a run. `called`: from when on its time limit counts, if it has one, in monotonic
    seconds. `save` gets the value that the handler saves, not yet encoded.
    """
    log = RunLogger(report.log)
    ends = None if data.allowed is None else called + data.allowed

    def time_left() -> float | None:
        return None if ends is None else max(ends - SystemClock().monotonic(), 0.0)

    return Context(
        due=data.due,
        fence=data.fence,
        attempt=data.attempt,
        worker=data.worker,
        fenced=data.fenced,
        # A copy, as JSON: a handler may change it, and gets the same types in every runner.
        settings=msgspec.json.decode(msgspec.json.encode(data.settings)) if data.settings else {},
        log=log,
        lost=lost,
        stopping=stopping,
        progress=report.progress,
        warn=partial(report.warn, log),
        checkpoint=data.checkpoint,
        resources=resources,
        time_left=time_left,
        save=save,
    )
