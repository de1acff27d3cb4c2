"""The one store of the simulated world: a contents in memory, and those who watch what is written.

Every batch that is applied is shown to all watchers, with the rows before and after: invariants
are judged at the moment of the writing, not by somebody who looks later.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from blackboard.model import whole_milliseconds
from blackboard.simulator.host import BEGAN
from blackboard.simulator.timeline import Timeline
from blackboard.table import Etag, Op, Row, Value
from blackboard.tables.memory import Contents

PREPARED = 60.0
"""Seconds before its sending that a batch may have been prepared: it waits for a store that is
away, or its process stood still; so long do the oracles make allowance for a clock that was set.
"""


@dataclass(slots=True, kw_only=True, eq=False)
class Sender:
    """Who sends a batch: a worker, or one request of a person."""

    name: str
    """The worker's owner text, or who asks."""
    verb: str = ""
    """What a person asked for; "" for a worker."""
    fence: int = 0
    """That a person means."""
    applied: int = 0
    """Batches of this sender that were applied."""
    born: int | None = None
    """Of the item that a person's request read first."""
    newer: bool = False
    """Whether it is a program of a newer version."""

    @property
    def is_person(self) -> bool:
        return self.verb != ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A batch that was applied."""

    sender: Sender
    partition: str
    ops: Sequence[Op]
    before: Mapping[str, Row]
    """The rows it touched, as they were; `stamp` is the moment they were written."""
    after: Mapping[str, Row]
    moment: float
    """Seconds since the world began: also what ages are reckoned by."""
    sent: float
    """When it was sent."""
    now: datetime
    """By the store's clock."""
    latest: datetime
    """The latest time that this clock has shown since the batch may have been prepared."""


Watcher = Callable[[Written], None]


class StoreClock:
    """What the store says of the time. It may be set, as the wall clock of a host may be: ages are
    reckoned otherwise, and do not jump.
    """

    def __init__(self, timeline: Timeline, rate: float = 1.0) -> None:
        self._timeline = timeline
        self._rate = rate
        self._offsets = [(0.0, 0.0)]
        """From a moment on, so many seconds ahead."""

    def now(self) -> datetime:
        return self._at(self._timeline.now, self._offsets[-1][1])

    def jump(self, seconds: float) -> None:
        self._offsets.append((self._timeline.now, self._offsets[-1][1] + seconds))

    def latest(self, since: float) -> datetime:
        """The latest time that it has shown since a moment."""
        latest = self.now()
        ends = [moment for moment, _ in self._offsets[1:]]
        for (_, ahead), end in zip(self._offsets, ends, strict=False):
            if end >= since:
                latest = max(latest, self._at(end, ahead))
        return latest

    def _at(self, moment: float, ahead: float) -> datetime:
        return whole_milliseconds(BEGAN + timedelta(seconds=moment * self._rate + ahead))


@dataclass(slots=True, kw_only=True)
class Store:
    """Applies batches and serves pages, at once."""

    timeline: Timeline
    clock: StoreClock
    contents: Contents = field(default_factory=Contents)
    watchers: list[Watcher] = field(default_factory=list)

    def now(self) -> datetime:
        return self.clock.now()

    def commit(
        self,
        sender: Sender,
        partition: str,
        ops: Sequence[Op],
        datas: list[dict[str, Value]],
        *,
        sent: float,
    ) -> list[Etag]:
        before = self._rows(partition, ops)
        moment = self.timeline.now
        etags = self.contents.apply(partition, ops, datas, moment=moment)
        sender.applied += 1
        written = Written(
            sender=sender,
            partition=partition,
            ops=ops,
            before=before,
            after=self._rows(partition, ops),
            moment=moment,
            sent=sent,
            now=self.now(),
            latest=self.clock.latest(sent - PREPARED),
        )
        for watches in self.watchers:
            watches(written)
        return etags

    def page(self, partition: str, first: str, end: str, count: int) -> list[Row]:
        """As they are now; `stamp` is the age, in seconds."""
        moment, found = self.timeline.now, self.contents.page(partition, first, end, count)
        return [Row(key, kept.etag, kept.data, moment - kept.touched) for key, kept in found]

    def _rows(self, partition: str, ops: Sequence[Op]) -> dict[str, Row]:
        found = ((op.key, self.contents.row(partition, op.key)) for op in ops)
        return {key: row for key, row in found if row is not None}
