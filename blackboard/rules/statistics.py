"""Counts the items of a board: by state, by type, and by what calls for attention. Pure.

The counts are kept in a row, which `show` and `status` read instead of all items. `is_current` says
how long they may do so.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from blackboard.model import ItemCounts, Statistics, TypeCounts
from blackboard.rules.status import ItemStatus

COUNTED_EVERY = timedelta(minutes=5)
"""From one counting to the next."""
CURRENT = 3 * COUNTED_EVERY
"""Counts that are older are not shown: nobody counts any more."""
MOST_TYPES = 100
"""Types that are counted one by one: their counts fit a row. The items of others are in the totals
alone.
"""


class Tally:
    """Counts items that are read one after the other."""

    def __init__(self) -> None:
        self._by_type: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._earliest: datetime | None = None

    def add(self, one: ItemStatus) -> None:
        """Count an item; not a tombstone."""
        counts = self._by_type[one.item.type]
        counts["items"] += 1
        counts[one.item.state.value] += 1
        for name in ("running", "stale", "overdue", "failing"):
            if getattr(one, name):
                counts[name] += 1
        if one.warnings:
            counts["warned"] += 1
        if one.waiting and (self._earliest is None or one.item.ready < self._earliest):
            self._earliest = one.item.ready

    def statistics(self, *, at: datetime, by: str = "", term: int = 0, took: float) -> Statistics:
        """All that was counted."""
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
        found = [TypeCounts(type=name, **_counts(counts)) for name, counts in self._by_type.items()]
        return sorted(found, key=lambda one: (-one.items, one.type))


def counts_of(statuses: Iterable[ItemStatus], *, now: datetime) -> Statistics:
    """Items that have been read, counted."""
    tally = Tally()
    for one in statuses:
        tally.add(one)
    return tally.statistics(at=now, took=0.0)


def _counts(counts: Counter[str]) -> dict[str, Any]:
    return {name: counts[name] for name in ItemCounts.__struct_fields__}


def is_current(statistics: Statistics, *, now: datetime) -> bool:
    """Whether counts may be shown instead of counting. Those of the future were written under a
    clock that was wrong.
    """
    return timedelta(minutes=-1) <= now - statistics.at <= CURRENT
