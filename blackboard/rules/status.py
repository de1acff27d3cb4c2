"""The status of an item, in the words that `show` and its filters use. Pure.

    stale     it is running, and its lock was not renewed for longer than its lease
    running   a worker holds its lock
    overdue   it is active, waits, and has been ready for longer than is usual
    failed    a run failed, timed out or was abandoned, and none was ok since; failures are counted
    waiting   it is active and has a token, due or not
    active, paused, done   what an operator decided, or what became of it

Several may hold at once. Nothing here decides what a worker does; see `rules/due.py`.

The items of a board are counted by state, by type, and by what calls for attention. The counts are
kept in a row, which `show` and `status` read instead of all items of a large board; `is_current`
says how long they may do so.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from blackboard.model import Item, ItemCounts, Lock, Outcome, Statistics, TypeCounts
from blackboard.rules.due import is_stale

STATES = ("active", "paused", "done", "running", "overdue", "failed", "stale", "waiting")
OVERDUE_AFTER = timedelta(minutes=1)
"""How long an item may be ready until it is overdue: a worker walks once in a cycle."""


class ItemStatus(Struct, frozen=True):
    """An item, its lock, and its status."""

    item: Item
    lock: Lock | None
    stale: bool
    overdue: bool
    silent: float | None = None
    """Seconds since the worker that runs it was last seen, if that worker is lost; None: it is not,
    or the rows of the workers were not read."""

    @property
    def running(self) -> bool:
        return self.item.running

    @property
    def holder(self) -> str:
        """The worker or leader that holds its lock; "" if there is none, or the lock is stale."""
        return self.item.owner if self.running and not self.stale else ""

    @property
    def failing(self) -> bool:
        return self.item.failures > 0

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of its last run, where that was ok."""
        well = self.item.outcome is Outcome.OK and not self.failing
        return self.item.warnings if well else ()

    @property
    def waiting(self) -> bool:
        return self.item.waits

    def has(self, state: str) -> bool:
        """Whether one of `STATES` holds."""
        match state:
            case "running":
                return self.running
            case "overdue":
                return self.overdue
            case "failed":
                return self.failing
            case "stale":
                return self.stale
            case "waiting":
                return self.waiting
            case "paused":
                return self.item.is_paused
            case _:
                return self.item.state.value == state


def status_of(
    item: Item,
    lock: Lock | None,
    *,
    now: datetime,
    resolution: float,
    overdue_after: timedelta = OVERDUE_AFTER,
) -> ItemStatus:
    """`now` and `resolution` are the store's. A lock of another fence belongs to another run than
    that of the item as read, and is ignored.
    """
    mine = lock if lock is not None and item.running and lock.fence == item.fence else None
    return ItemStatus(
        item,
        mine,
        stale=mine is not None and is_stale(mine, resolution=resolution),
        overdue=item.waits and now - item.ready > overdue_after,
    )


COUNTED_EVERY = timedelta(minutes=5)
"""The time from one counting to the next."""
CURRENT = 3 * COUNTED_EVERY
"""The age up to which counts are shown: where they are older, the counting has stopped."""
MOST_TYPES = 100
"""Types that are counted one by one: their counts fit a row. The items of others are in the totals
alone.
"""


class Tally:
    """Counts items that are read one after the other."""

    def __init__(self) -> None:
        self._by_type: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._earliest: datetime | None = None

    def add(self, status: ItemStatus) -> None:
        """Counts an item, which is no tombstone."""
        counts = self._by_type[status.item.type]
        counts["items"] += 1
        counts[status.item.state.value] += 1
        for name in ("running", "stale", "overdue", "failing"):
            if getattr(status, name):
                counts[name] += 1
        if status.warnings:
            counts["warned"] += 1
        if status.waiting and (self._earliest is None or status.item.ready < self._earliest):
            self._earliest = status.item.ready

    def statistics(self, *, at: datetime, by: str = "", term: int = 0, took: float) -> Statistics:
        """The counts of all items that were added."""
        total: Counter[str] = sum(self._by_type.values(), Counter())
        return Statistics(
            **_counts(total),
            at=at,
            by=by,
            term=term,
            took=took,
            earliest=self._earliest,
            by_type=tuple(self._most_frequent()[:MOST_TYPES]),
        )

    def _most_frequent(self) -> Sequence[TypeCounts]:
        types = [TypeCounts(type=name, **_counts(counts)) for name, counts in self._by_type.items()]
        return sorted(types, key=lambda type_counts: (-type_counts.items, type_counts.type))


def counts_of(statuses: Iterable[ItemStatus], *, now: datetime) -> Statistics:
    """The counts of items that have been read."""
    tally = Tally()
    for status in statuses:
        tally.add(status)
    return tally.statistics(at=now, took=0.0)


def _counts(counts: Counter[str]) -> dict[str, Any]:
    return {name: counts[name] for name in ItemCounts.__struct_fields__}


def is_current(statistics: Statistics, *, now: datetime) -> bool:
    """Whether counts may be shown instead of counting. Those of the future were written under a
    clock that was wrong.
    """
    return timedelta(minutes=-1) <= now - statistics.at <= CURRENT
