"""What the store and the network may be asked to bear."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from blackboard.simulator.host import Process
from blackboard.simulator.scenario import Scenario
from blackboard.simulator.store import Written
from blackboard.simulator.timeline import Timeline
from blackboard.simulator.violation import Violation
from blackboard.table import Conflict, Insert, Op, TableError
from blackboard.worker.walk import REREADINGS, WalkResult

MOST_ROWS = 100
A_WALK, A_SHARD, A_RUN, A_SECOND = 20, 2 + 2 * REREADINGS, 12, 3
"""Requests of a worker in a cycle, at the most: in any case, for each shard, for each run or lock
that it has to do with, and for each second, in which a store may be asked again.
"""
LONG_READ = 200
"""Rows, about, of the longest reading: the history of an item before it is pruned."""
MOST_REFUSALS = 3
"""Of one sender for one version of a row, while nobody changes it and all it asks is answered."""


class Etags:
    """No etag comes twice for a key."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str, str]] = set()

    def __call__(self, written: Written) -> None:
        if len(written.ops) > MOST_ROWS:
            raise Violation("LIMITS", f"{len(written.ops)} rows in a batch")
        for key, row in written.after.items():
            name = (written.partition, key, row.etag)
            if name in self._seen:
                raise Violation("ETAG", f"{row.etag} came again for {key}")
            self._seen.add(name)


class Refusals:
    """Nobody sends the same batch again and again."""

    def __init__(self) -> None:
        self._times: dict[str, Counter[tuple[str, str, str]]] = {}
        """By row; then by process, sender, and the version that it expected."""

    def refused(
        self, process: Process, sender: str, ops: Sequence[Op], problem: TableError
    ) -> None:
        if not isinstance(problem, Conflict):
            return
        op = ops[problem.index]
        times = self._times.setdefault(op.key, Counter())
        expected = (process.name, sender, "" if isinstance(op, Insert) else op.etag)
        times[expected] += 1
        if times[expected] > MOST_REFUSALS:
            what = f"{times[expected]} times for {op.key}: {problem.kind.value}"
            raise Violation("REFUSED", f"{sender} {what}")

    def troubled(self, process: Process) -> None:
        """Something it asked was not answered: it cannot know better."""
        for times in self._times.values():
            for one in [one for one in times if one[0] == process.name]:
                del times[one]

    def written(self, written: Written) -> None:
        for op in written.ops:
            self._times.pop(op.key, None)


@dataclass(slots=True)
class Since:
    """What a process has done since it was last judged."""

    began: float
    sent: int
    """Requests by then."""
    runs: int = 0
    """That were claimed, or have ended."""
    most: int = 0
    """Runs, locks and missed slots that it had to do with in one walk."""


class Walks:
    """A worker asks as much as there is to do, and not again and again. Judged every cycle."""

    def __init__(self, scenario: Scenario, timeline: Timeline) -> None:
        self._shards, self._cycle = scenario.shards, scenario.cycle.total_seconds()
        self._page_rows = scenario.page_rows
        self._timeline = timeline
        self._since: dict[str, Since] = {}

    def ran(self, process: Process) -> None:
        """A run of the process was claimed, or has ended."""
        if process.name in self._since:
            self._since[process.name].runs += 1

    def walked(self, process: Process, result: WalkResult, held: int, sent: int) -> None:
        """So many requests were sent by the end of this walk, and so many runs held."""
        now = self._timeline.now
        since = self._since.setdefault(process.name, Since(now, sent))
        since.most = max(since.most, held + len(result.locks) + result.missed)
        asked, seconds = sent - since.sent, now - since.began
        if seconds < self._cycle:
            return
        self._since[process.name] = Since(now, sent)
        runs = since.runs + since.most
        pages = 1 + LONG_READ // self._page_rows
        most = (
            A_WALK * pages
            + A_SHARD * pages * self._shards
            + A_RUN * pages * runs
            + A_SECOND * seconds
        )
        if asked > most:
            what = f"{process.name} asked {asked} times in {seconds:.1f} s, about {runs} runs"
            raise Violation("REQUESTS", what)
