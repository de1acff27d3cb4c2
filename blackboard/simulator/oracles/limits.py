"""What the store and the network may be asked to bear."""

from collections import Counter
from collections.abc import Sequence

from blackboard.seen import Seen
from blackboard.simulator.host import Process
from blackboard.simulator.store import Written
from blackboard.simulator.timeline import Timeline
from blackboard.simulator.violation import Violation
from blackboard.table import Conflict, Insert, Op, TableError
from blackboard.walk import REREADINGS

MOST_ROWS = 100
A_WALK, A_SHARD, A_RUN, A_SECOND = 20, 2 + 2 * REREADINGS, 12, 3
"""Requests from one walk of a worker to the next, at the most: in any case, for each shard, for
each run or lock that it has to do with, and for each second, in which a store may be asked again.
"""
MOST_REFUSALS = 3
"""Of one process for one version of a row, while nobody changes it and all it asks is answered."""


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
        self._times: dict[str, Counter[tuple[str, str]]] = {}
        """By row; then by process, and the version that it expected."""

    def refused(self, process: Process, ops: Sequence[Op], problem: TableError) -> None:
        if not isinstance(problem, Conflict):
            return
        op = ops[problem.index]
        times = self._times.setdefault(op.key, Counter())
        expected = (process.name, "" if isinstance(op, Insert) else op.etag)
        times[expected] += 1
        if times[expected] > MOST_REFUSALS:
            what = f"{times[expected]} times for {op.key}: {problem.kind.value}"
            raise Violation("REFUSED", f"{process.name} {what}")

    def troubled(self, process: Process) -> None:
        """Something it asked was not answered: it cannot know better."""
        for times in self._times.values():
            for one in [one for one in times if one[0] == process.name]:
                del times[one]

    def written(self, written: Written) -> None:
        for op in written.ops:
            self._times.pop(op.key, None)


class Walks:
    """A worker asks as much as there is to do, and not again and again."""

    def __init__(self, shards: int, timeline: Timeline) -> None:
        self._shards = shards
        self._timeline = timeline
        self._last: dict[str, tuple[float, int]] = {}
        """When the last walk of a process ended, and the requests that it had sent by then."""
        self._busy: Counter[str] = Counter()

    def ran(self, process: Process) -> None:
        """A run of the process was claimed, or has ended."""
        self._busy[process.name] += 1

    def walked(self, process: Process, seen: Seen, held: int, sent: int) -> None:
        """So many requests were sent by the end of this walk, and so many runs held."""
        now = self._timeline.now
        last, before = self._last.get(process.name, (0.0, 0))
        self._last[process.name] = now, sent
        asked, seconds = sent - before, now - last
        runs = self._busy.pop(process.name, 0) + held + len(seen.locks) + seen.missed
        most = A_WALK + A_SHARD * self._shards + A_RUN * runs + A_SECOND * seconds
        if asked > most:
            what = f"{process.name} asked {asked} times in {seconds:.1f} s, about {runs} runs"
            raise Violation("REQUESTS", what)
