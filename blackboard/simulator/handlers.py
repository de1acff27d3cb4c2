"""Simulated handlers: they take their time and do nothing.

How long a run takes, how it ends, and whether it saves is drawn from the seed, the item and the
fence; the worker and the time make no difference. Two handlers of one item at the same time
overlap: this is measured, for no promise forbids it.

A run that saves goes on with the number that was saved last, and saves the next ones while it runs,
each with its own fence.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from blackboard.errors import LeaseLost
from blackboard.handlers.handler import Handler, Source
from blackboard.model import Ended, Outcome
from blackboard.runners.runner import Execution, HandlerCall, Reporter
from blackboard.simulator.changes import Saved, saved_in, text_of_saved
from blackboard.simulator.processes import Process, Timeline, stream
from blackboard.spec import Spec
from blackboard.worker.heartbeat import GONE

if TYPE_CHECKING:
    from blackboard.simulator.world import World

PLAIN, FENCED, NARROW = "task", "fenced", "narrow"
SCARCE, KEYED = "scarce", "keyed"
"""The types of items."""
ENDLESS = 0.003
"""The share of runs that hang until they are stopped."""
SOONEST, LATEST = 0.05, 0.5
"""The earliest and the latest first save of a run, as shares of its item's mean run time."""


async def _nothing(item: Any, ctx: Any) -> None:
    """Is never called: the runner only waits."""


def handler_of(
    item_type: str,
    *,
    fenced: bool = False,
    slots: int | None = None,
    concurrency: int | None = None,
    key: str | None = None,
) -> Handler:
    return Handler(
        type=item_type,
        function=_nothing,
        is_async=True,
        spec=Spec(),
        slots=slots,
        fenced=fenced,
        concurrency=concurrency,
        key=key,
        source=Source("", __name__),
    )


LARGE, TOO_LARGE, TOO_DEEP = 20_000, 40_000, 2_000
"""Characters of a result that fits a row, and of one that does not; levels of lists too deep."""
LARGE_ONES = 0.04
"""The share of results that are large; half of these do not fit a row."""
ENDS = (
    "it failed, as it was drawn",
    "its process ended with SIGKILL",
    "its process ended with exit code 3 and said nothing",
    "its process did not answer\x00, and said \ud800",
    "Traceback (most recent call last):\n" + 1_000 * '  File "a.py", line 1, in f\n',
)
"""Errors, as runners write them."""


@dataclass(slots=True, kw_only=True, eq=False)
class HandlerRun:
    runs: "HandlerRuns"
    call: HandlerCall
    process: Process
    report: Reporter
    ended: asyncio.Future[Ended]
    began: float
    size: float
    """In [0, 1): how large its result is, or how its process ended."""
    timer: asyncio.TimerHandle | None = None
    saving: asyncio.Task[None] | None = None
    notified: float | None = None
    """The moment when it was first notified of a lost lock, or asked to stop."""
    lost: float | None = None
    """The moment when it was notified of a lost lock."""
    deadline: float = -math.inf
    """Until when its worker trusts the lock, by the clock of the process."""

    async def wait(self) -> Ended:
        return await asyncio.shield(self.ended)

    def when_ended(self, call: Callable[[Ended], None]) -> None:
        self.ended.add_done_callback(lambda ended: call(ended.result()))

    def extend(self, deadline: float) -> None:
        """Notes the deadline. The handler is a coroutine, which stops with its loop."""
        self.deadline = deadline
        self.runs.watcher.lock_extended(self)

    def lose(self, reason: str) -> None:
        self._notify()
        if self.lost is None:
            self.lost = self.notified
            if reason == GONE:
                self.runs.watcher.lock_gone(self)

    def ask_to_end(self, reason: str) -> None:
        """Does nothing: only a pump can be asked to end."""

    def stop(self, outcome: Outcome, reason: str) -> None:
        self._notify()
        self._end(Ended(outcome=outcome, error=reason))

    def finish(self, outcome: Outcome) -> None:
        """Ends the run with the outcome that was drawn for it."""
        if outcome is Outcome.OK:
            self._end(Ended(outcome=outcome, result=result_of(self), error=""))
        else:
            self._end(Ended(outcome=outcome, error=ENDS[int(self.size * len(ENDS))]))

    async def save(self, pause: float) -> None:
        """Saves the next numbers until it is cancelled, each after twice the time of the one
        before.
        """
        number = saved_in(self.call.checkpoint).number
        while True:
            await self.process.loop.sleep(pause)
            pause, number = 2 * pause, number + 1
            if not await self._saved(number):
                return

    async def _saved(self, number: int) -> bool:
        """Saves a number. Returns False if the run has lost its lock: it then fails, as a handler
        that does not catch the error.
        """
        saved = Saved(number, self.call.fence)
        try:
            await self.report.save(text_of_saved(saved))
        except LeaseLost as lost:
            self._notify()
            self._end(Ended(outcome=Outcome.FAILED, error=str(lost)))
            return False
        self.runs.watcher.acknowledged(self.call.item.id, saved)
        return True

    def start_saving(self, pause: float) -> None:
        self.saving = self.process.loop.spawn(self.save(pause))
        self.saving.add_done_callback(self._has_saved)

    def _has_saved(self, saving: asyncio.Task[None]) -> None:
        problem = None if saving.cancelled() else saving.exception()
        if problem is not None:
            self.runs.timeline.failures.append(problem)

    def _notify(self) -> None:
        if self.notified is None:
            self.notified = self.runs.timeline.now

    def _end(self, ended: Ended) -> None:
        if self.ended.done():
            return
        if self.timer is not None:
            self.timer.cancel()
        if self.saving is not None:
            self.saving.cancel()
        self.ended.set_result(ended)
        self.runs.end(self)


def result_of(run: HandlerRun) -> Any:
    """The result of a good run: short, or large, or more than a row can hold."""
    share = run.size / LARGE_ONES
    if share >= 1.0:
        return f"{run.call.item.id}:{run.call.fence}"
    if share >= 0.5:
        return LARGE * "x"
    if share >= 0.25:
        return TOO_LARGE * "x"
    nested: list[Any] = []
    for _ in range(TOO_DEEP):
        nested = [nested]
    return nested


Begin = Callable[[Process, HandlerCall, Reporter], HandlerRun]


@dataclass(slots=True, kw_only=True)
class HandlerRuns:
    """All handlers that run in any process, and how much they overlap."""

    timeline: Timeline
    seed: int
    takes: Mapping[str, float]
    """Seconds that a run of an item takes on the mean."""
    failing: float
    saving: float
    others: Mapping[str, Begin]
    """Begins the runs of shared work, by type."""
    watcher: "World"
    by_item: dict[str, list[HandlerRun]] = field(default_factory=dict)
    """The runs that have not ended, by item."""
    count: int = 0
    overlaps: int = 0
    """Runs that began while another of the same item went on."""
    overlapped: float = 0.0
    """Seconds that two runs of the same item went on together, summed over all pairs."""
    worked: float = 0.0
    """Seconds of all runs that have ended."""

    def __iter__(self) -> Iterator[HandlerRun]:
        """Iterates over a copy of the runs that have not ended."""
        return iter([run for runs in self.by_item.values() for run in runs])

    def begin(self, process: Process, call: HandlerCall, report: Reporter) -> HandlerRun:
        run = self.others.get(call.item.type, self._run)(process, call, report)
        report.called()
        self.watcher.run_begins(run)
        others = self.by_item.setdefault(call.item.id, [])
        self.count += 1
        self.overlaps += bool(others)
        others.append(run)
        return run

    def _run(self, process: Process, call: HandlerCall, report: Reporter) -> HandlerRun:
        chance = stream(self.seed, f"run {call.item.id} {call.fence}")
        mean = self.takes[call.item.id]
        takes = mean * min(-math.log(1.0 - chance.fraction()), 8.0)
        hangs = chance.fraction() < ENDLESS and self.failing > 0
        outcome = Outcome.FAILED if chance.fraction() < self.failing else Outcome.OK
        run = HandlerRun(
            runs=self,
            call=call,
            process=process,
            report=report,
            ended=process.loop.create_future(),
            began=self.timeline.now,
            size=chance.fraction() if self.failing else 1.0,
        )
        if not hangs:
            run.timer = process.loop.call_later(takes, run.finish, outcome)
        saves = stream(self.seed, f"saves {call.item.id} {call.fence}")
        if saves.fraction() < self.saving:
            run.start_saving(mean * (SOONEST + (LATEST - SOONEST) * saves.fraction()))
        return run

    def end(self, run: HandlerRun) -> None:
        """Counts a handler that has ended, or whose process is dead."""
        self.watcher.run_ends(run)
        others = self.by_item[run.call.item.id]
        others.remove(run)
        now = self.timeline.now
        self.worked += now - run.began
        self.overlapped += sum(now - max(other.began, run.began) for other in others)
        if not others:
            del self.by_item[run.call.item.id]

    def died(self, process: Process) -> None:
        """A process is dead, and all its handlers with it."""
        for run in self:
            if run.process is process:
                self.end(run)

    def of(self, process: Process, fence: int, item_id: str) -> HandlerRun | None:
        """The handler that runs under a claim, if there is one."""
        for run in self.by_item.get(item_id, ()):
            if run.process is process and run.call.fence == fence:
                return run
        return None


@dataclass(slots=True)
class SimulatedRunner:
    runs: HandlerRuns
    process: Process
    types: Collection[str]
    """The types of the handlers that it calls."""

    def start(self, call: HandlerCall, report: Reporter, deadline: float) -> Execution:  # noqa: ARG002
        return self.runs.begin(self.process, call, report)

    async def can_start(self, source: Source) -> bool:  # noqa: ARG002
        return True

    async def close(self) -> None:
        for run in self.runs:
            if run.process is self.process and run.call.item.type in self.types:
                run.stop(Outcome.CANCELLED, "the worker ended")
