"""The contract of a runner: it calls a handler, and says exactly once how that ended.

A runner decides nothing. It knows neither item nor lock: the worker tells it how long the lease
holds, that the lock is lost, or that the run is to be stopped, and writes down what it answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from blackboard.context import HandlerItem
from blackboard.handlers import Handler
from blackboard.model import Ended, Outcome
from blackboard.runners.secrets import NOTHING, Mask
from blackboard.tables.checks import MAX_VALUE


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One run of one handler: everything it is given."""

    handler: Handler
    item: HandlerItem
    due: datetime
    fence: int
    attempt: int
    worker: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The table `[jobs.TYPE]`."""
    fenced: bool = False
    """Whether what an overtaken run leaves behind must not replace what a later one wrote."""
    mask: Mask = NOTHING
    """For all that the handler says: what the runner reports and answers is masked."""
    limit: int = MAX_VALUE
    """Characters of JSON that a result may have."""


class Report(Protocol):
    """Whom a runner tells what a handler says while it runs. Called on the loop, in order, and
    never after the run's end.
    """

    def progress(self, done: int, total: int) -> None: ...

    def log(self, level: int, message: str) -> None:
        """`level` as in `logging`. `message` may have several lines."""
        ...


class Execution(Protocol):
    """A handler that has been called."""

    async def wait(self) -> Ended:
        """How it ended; the same answer for everybody who asks. Never raises, whatever the
        handler did.
        """
        ...

    def extend(self, deadline: float) -> None:
        """The lease now holds until `deadline`, in monotonic seconds of this host."""
        ...

    def lose(self, reason: str) -> None:
        """The lock is lost: `ctx.lost` becomes truthy. The handler is not stopped by this."""
        ...

    def stop(self, outcome: Outcome, reason: str) -> None:
        """Stop the handler at once; `wait` then answers `Ended(outcome, error=reason)`. The first
        to call it decides; after the end it does nothing.
        """
        ...


class Runner(Protocol):
    """A way of calling handlers. Belongs to one event loop."""

    def start(self, call: Call, report: Report, deadline: float) -> Execution:
        """Call the handler. The lease holds until `deadline`, in monotonic seconds."""
        ...

    async def close(self) -> None:
        """Stop what still runs, as cancelled, and let go of everything."""
        ...
