"""The contract of a runner: it calls a handler, and reports exactly once how that ended.

A runner decides nothing, and uses neither item rows nor locks: the worker says how long the lease
holds, that the lock is lost, or that the run is to be stopped, and writes the outcome.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from blackboard.handlers.context import HandlerItem
from blackboard.handlers.handler import Handler, Source
from blackboard.model import Ended, Outcome
from blackboard.runners.secrets import NOTHING, Mask
from blackboard.tables.base import MAX_VALUE


class RunData(Struct, frozen=True, kw_only=True):
    """The data of one run, for the process in which its handler is called."""

    item: HandlerItem
    due: datetime
    fence: int
    attempt: int
    worker: str
    settings: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The table `[jobs.TYPE]`."""
    fenced: bool = False
    """Whether the output of an overtaken run must not replace that of a later one."""
    limit: int = MAX_VALUE
    """Characters of JSON that a result, or a checkpoint, may have."""
    checkpoint: Any = None
    """The value that earlier runs have saved; None where there is nothing."""
    allowed: float | None = None
    """Seconds after the call of the handler in which its time limit stops it; None: never."""
    trace: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The W3C trace context of the run, for another process; empty where runs are not traced."""


class HandlerCall(RunData, frozen=True, kw_only=True):
    """One run of one handler, with everything that the handler is given."""

    handler: Handler
    mask: Mask = NOTHING
    """Applied to everything that the runner reports and returns."""

    @property
    def data(self) -> RunData:
        """The part that another process can be sent."""
        return RunData(**{name: getattr(self, name) for name in RunData.__struct_fields__})


class Reporter(Protocol):
    """Receives what a handler emits while it runs. Called in order, and never after
    the run's end; on the loop, but for `run --here`, which calls it on the handler's threads.
    """

    def called(self) -> None:
        """The time limit counts from now: the module of the handler is imported, and what comes
        next is to open its resources and to call it.
        """
        ...

    def progress(self, done: int, total: int) -> None: ...

    def log(self, level: int, message: str) -> None:
        """`level` as in `logging`. `message` may have several lines."""
        ...

    async def save(self, checkpoint: str) -> None:
        """Saves a checkpoint, JSON. Raises LeaseLost when the lock is lost, BlackboardError when
        the store refuses it.
        """
        ...


class Execution(Protocol):
    """A handler that has been called."""

    async def wait(self) -> Ended:
        """How it ended; each call returns the same. Never raises, whatever the handler did."""
        ...

    def when_ended(self, call: Callable[[Ended], None]) -> None:
        """Calls `call` on the loop, once, with how it ended."""
        ...

    def extend(self, deadline: float) -> None:
        """Extends the lease until `deadline`, in monotonic seconds of this host."""
        ...

    def lose(self, reason: str) -> None:
        """Makes `ctx.lost` true, because the lock is lost. Does not stop the handler."""
        ...

    def ask_to_end(self, reason: str) -> None:
        """Makes `ctx.stopping` true. Does not stop the handler."""
        ...

    def stop(self, outcome: Outcome, reason: str) -> None:
        """Stops the handler at once; `wait` then returns `Ended(outcome, error=reason)`. The first
        call decides; after the end it does nothing.
        """
        ...


async def cancel_all(runs: Iterable[Execution]) -> None:
    """Stops the runs of a worker that ends, and waits for their end."""
    left = list(runs)
    for run in left:
        run.stop(Outcome.CANCELLED, "the worker ended")
    for run in left:
        await run.wait()


class Runner(Protocol):
    """A way of calling handlers. Belongs to one event loop."""

    def start(self, call: HandlerCall, report: Reporter, deadline: float) -> Execution:
        """Calls the handler. The lease holds until `deadline`, in monotonic seconds."""
        ...

    async def can_start(self, source: Source) -> bool:
        """Tries whether a handler of this module could be called now, after one that could not."""
        ...

    async def close(self) -> None:
        """Stops what still runs, as cancelled, and releases everything."""
        ...
