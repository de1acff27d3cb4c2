"""When a run may begin: at a slot that its item's schedule has, whoever edited it meanwhile."""

from collections import defaultdict
from collections.abc import Callable
from datetime import datetime

from blackboard.model import Item, Lock
from blackboard.rules.next_run import MILLISECOND, slot_of
from blackboard.schedule.schedule import Every, Once, Schedule, next_due
from blackboard.simulator.changes import Change
from blackboard.simulator.violation import Violation
from blackboard.table import Insert


class Slots:
    """Remembers of each item what was planned before it ever ran, which may be at any time, and the
    slots it was claimed for: what was cut short, or is tried again, is run again.
    """

    def __init__(self, schedule_of: Callable[[Item], Schedule | None]) -> None:
        self._schedule_of = schedule_of
        self._first: dict[str, datetime] = {}
        self._claimed: defaultdict[str, set[datetime]] = defaultdict(set)

    def __call__(self, change: Change) -> None:
        before, now = change.before, change.shadow.item
        if now is not None and now.start is None:
            self._first[now.id] = now.planned
        if before is None or not any(isinstance(one.op, Insert) for one in change.of(Lock)):
            return
        claimed = self._claimed[before.id]
        known = before.slot in claimed or before.slot == self._first[before.id]
        claimed.add(before.slot)
        if not known and before.slot == before.planned and not self._has(before):
            what = f"{before.slot} is no slot of {before.schedule or 'nothing'}"
            raise Violation("SLOT", what, item=before.id)

    def _has(self, item: Item) -> bool:
        """Whether the item's schedule has the slot it waits for."""
        match self._schedule_of(item):
            case None:
                return True  # what waits when its schedule is taken away goes on waiting
            case Once() as once:
                return item.slot == slot_of(once)
            case Every() as every:
                return item.start is not None and item.slot == next_due(every, item.start)
            case schedule:
                return item.slot == next_due(schedule, item.slot - MILLISECOND)
