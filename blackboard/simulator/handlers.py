"""Handlers of the simulated world: they take their time and do nothing.

How long a run takes, and how it ends, is drawn from the seed and the run's own name (item and
fence), not from who runs it or when. Where two handlers run for one item at the same time, that is
overlap: it is measured and told, for nothing that is promised forbids it.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from blackboard.handlers import Handler, Source
from blackboard.model import Ended, Outcome
from blackboard.runner import Execution, HandlerCall, Reporter
from blackboard.simulator.chance import stream
from blackboard.simulator.host import Process
from blackboard.simulator.timeline import Timeline
from blackboard.spec import Spec

PLAIN, FENCED, NARROW = "task", "fenced", "narrow"
"""The types there are."""
ENDLESS = 0.003
"""Of all runs, those that hang until they are stopped."""


async def _nothing(item: Any, ctx: Any) -> None:
    """What is called is up to the runner."""


def handler_of(item_type: str, *, fenced: bool = False, slots: int | None = None) -> Handler:
    return Handler(
        type=item_type,
        function=_nothing,
        is_async=True,
        spec=Spec(),
        slots=slots,
        fenced=fenced,
        source=Source("", __name__),
    )


LARGE, TOO_LARGE, TOO_DEEP = 20_000, 40_000, 2_000
"""Characters of a result that a row holds, and of one that it does not; lists in each other."""
LARGE_ONES = 0.04
"""Of all results, half of them more than a row can hold."""
ENDS = (
    "it failed, as it was drawn",
    "its process ended with SIGKILL",
    "its process ended with exit code 3 and said nothing",
    "its process did not answer\x00, and said \ud800",
    "Traceback (most recent call last):\n" + 1_000 * '  File "a.py", line 1, in f\n',
)
"""What a runner says of a handler that failed, or of its process."""


@dataclass(slots=True, eq=False)
class Handling:
    """A handler that has been called."""

    call: HandlerCall
    process: Process
    ended: asyncio.Future[Ended]
    began: float
    size: float = 1.0
    """In [0, 1): how large its result is, or how its process ended."""
    timer: asyncio.TimerHandle | None = None
    told: float | None = None
    """When it was told that its lock is lost, or to stop: a moment of the world."""
    lost: float | None = None
    """When it was told that its lock is lost."""
    timeline: Timeline | None = None
    over: Callable[["Handling"], None] | None = None

    async def wait(self) -> Ended:
        return await asyncio.shield(self.ended)

    def extend(self, deadline: float) -> None:
        """It is a coroutine: a loop that stands still runs nothing."""

    def lose(self, reason: str) -> None:  # noqa: ARG002 - nobody reads it here
        self._is_told()
        if self.lost is None:
            self.lost = self.told

    def stop(self, outcome: Outcome, reason: str) -> None:
        self._is_told()
        if self.ended.done():
            return
        self._end(Ended(outcome=outcome, error=reason))

    def finish(self, outcome: Outcome) -> None:
        result = result_of(self) if outcome is Outcome.OK else None
        error = "" if outcome is Outcome.OK else ENDS[int(self.size * len(ENDS))]
        self._end(Ended(outcome=outcome, result=result, error=error))

    def _is_told(self) -> None:
        assert self.timeline is not None
        if self.told is None:
            self.told = self.timeline.now

    def _end(self, ended: Ended) -> None:
        if self.ended.done():
            return
        if self.timer is not None:
            self.timer.cancel()
        self.ended.set_result(ended)
        assert self.over is not None
        self.over(self)


def result_of(handling: Handling) -> Any:
    """What a good run returns: a few words, or more than anybody should."""
    share = handling.size / LARGE_ONES
    if share >= 1.0:
        return f"{handling.call.item.id}:{handling.call.fence}"
    if share >= 0.5:
        return LARGE * "x"
    if share >= 0.25:
        return TOO_LARGE * "x"
    nested: list[Any] = []
    for _ in range(TOO_DEEP):
        nested = [nested]
    return nested


@dataclass(frozen=True, slots=True, kw_only=True)
class Nature:
    """How the runs of items are."""

    takes: Callable[[str], float]
    """Seconds that a run of an item takes on the mean."""
    failing: float = 0.05


@dataclass(slots=True, kw_only=True)
class Stage:
    """Everything that is being handled anywhere, and how much of it overlapped."""

    timeline: Timeline
    seed: int
    nature: Nature
    begins: Callable[[Handling], None] = lambda _: None
    """Hears of every handler that is called."""
    ends: Callable[[Handling], None] = lambda _: None
    """Hears of every one that is gone."""
    handled: dict[str, list[Handling]] = field(default_factory=dict)
    """By item."""
    runs: int = 0
    overlaps: int = 0
    """Runs that began while another of the same item was going on."""
    overlapped: float = 0.0
    """Seconds."""
    worked: float = 0.0
    """Seconds of handlers, all together."""

    def begin(self, process: Process, call: HandlerCall) -> Handling:
        chance = stream(self.seed, f"run {call.item.id} {call.fence}")
        mean = self.nature.takes(call.item.id)
        takes = mean * min(-math.log(1.0 - chance.fraction()), 8.0)
        hangs = chance.fraction() < ENDLESS and self.nature.failing > 0
        outcome = Outcome.FAILED if chance.fraction() < self.nature.failing else Outcome.OK
        handling = Handling(
            call=call,
            process=process,
            ended=process.loop.create_future(),
            began=self.timeline.now,
            size=chance.fraction() if self.nature.failing else 1.0,
            timeline=self.timeline,
            over=self.end,
        )
        if not hangs:
            handling.timer = process.loop.call_later(takes, handling.finish, outcome)
        self.begins(handling)
        others = self.handled.setdefault(call.item.id, [])
        self.runs += 1
        self.overlaps += bool(others)
        others.append(handling)
        return handling

    def end(self, handling: Handling) -> None:
        self.ends(handling)
        others = self.handled[handling.call.item.id]
        others.remove(handling)
        now = self.timeline.now
        self.worked += now - handling.began
        self.overlapped += sum(now - max(one.began, handling.began) for one in others)
        if not others:
            del self.handled[handling.call.item.id]

    def died(self, process: Process) -> None:
        """A process and all its handlers are gone."""
        for others in list(self.handled.values()):
            for one in [one for one in others if one.process is process]:
                self.end(one)

    def of(self, process: Process, fence: int, item_id: str) -> Handling | None:
        """What goes on under a claim."""
        for one in self.handled.get(item_id, ()):
            if one.process is process and one.call.fence == fence:
                return one
        return None


@dataclass(slots=True)
class SimulatedRunner:
    """Calls the handlers of one process."""

    stage: Stage
    process: Process

    def start(self, call: HandlerCall, report: Reporter, deadline: float) -> Execution:  # noqa: ARG002
        return self.stage.begin(self.process, call)

    async def close(self) -> None:
        for others in list(self.stage.handled.values()):
            for one in [one for one in others if one.process is self.process]:
                one.stop(Outcome.CANCELLED, "the worker ended")
