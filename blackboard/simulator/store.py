"""The one store of the simulated world: a shelf in memory, and those who watch what is written.

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
from blackboard.tables.memory import Shelf


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
    now: datetime
    """By the store's clock."""


Watcher = Callable[[Written], None]


@dataclass(slots=True, kw_only=True)
class Store:
    """Applies batches and serves pages, at once."""

    timeline: Timeline
    shelf: Shelf = field(default_factory=Shelf)
    watchers: list[Watcher] = field(default_factory=list)

    def now(self) -> datetime:
        return whole_milliseconds(BEGAN + timedelta(seconds=self.timeline.now))

    def commit(
        self, sender: Sender, partition: str, ops: Sequence[Op], datas: list[dict[str, Value]]
    ) -> list[Etag]:
        before = self._rows(partition, ops)
        moment = self.timeline.now
        etags = self.shelf.apply(partition, ops, datas, moment=moment)
        sender.applied += 1
        written = Written(
            sender=sender,
            partition=partition,
            ops=ops,
            before=before,
            after=self._rows(partition, ops),
            moment=moment,
            now=self.now(),
        )
        for watches in self.watchers:
            watches(written)
        return etags

    def page(self, partition: str, first: str, end: str, count: int) -> list[Row]:
        """As they are now; `stamp` is the age, in seconds."""
        moment, found = self.timeline.now, self.shelf.page(partition, first, end, count)
        return [Row(key, kept.etag, kept.data, moment - kept.touched) for key, kept in found]

    def _rows(self, partition: str, ops: Sequence[Op]) -> dict[str, Row]:
        found = ((op.key, self.shelf.row(partition, op.key)) for op in ops)
        return {key: row for key, row in found if row is not None}
