"""Invariant of the limits of a board: LIMIT.

Of a type with a `concurrency` of N no more than N handlers go on at a time, whichever workers call
them; with a `key`, no more than N for each of its values. A handler whose process is stopped, or
was continued a moment ago, does not count: it has had no time to notice that its permit is lost.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from blackboard.model import Item, Permit
from blackboard.protocol.keys import permits_partition
from blackboard.protocol.permits import LEASE, Limit, limit_of
from blackboard.protocol.rows import record_of
from blackboard.simulator.handlers import HandlerRun, HandlerRuns
from blackboard.simulator.invariants import Violation
from blackboard.simulator.processes import Timeline
from blackboard.simulator.store import Written
from blackboard.simulator.workers import BOARD
from blackboard.spec import RunSettings
from blackboard.worker.permits import BEAT


@dataclass(slots=True, kw_only=True)
class LimitInvariants:
    """Checks the start of each handler."""

    timeline: Timeline
    handler_runs: HandlerRuns
    settings_of: Callable[[Item], RunSettings]
    resolve: Callable[[str, str], RunSettings]
    _touched: dict[str, tuple[Limit, float]] = field(default_factory=dict)
    """Permits that are in use, by key, and the moments when they were last written."""

    def written(self, written: Written) -> None:
        if written.partition != permits_partition(BOARD):
            return
        for op in written.ops:
            row = written.after.get(op.key)
            if row is None:
                self._touched.pop(op.key, None)
            else:
                permit = record_of(Permit, row)
                limit = Limit(permit.type, permit.value, 0)
                self._touched[op.key] = (limit, written.moment)

    def limit_of(self, item: Item) -> Limit | None:
        return limit_of(item, self.settings_of(item))

    def has_room(self, item: Item) -> bool:
        """Whether a permit is left for an item."""
        limit = self.limit_of(item)
        if limit is None:
            return True
        since = self.timeline.now - LEASE
        used = (its for its, moment in self._touched.values() if moment > since)
        return sum(its.name == limit.name for its in used) < limit.most

    def begins(self, handler_run: HandlerRun) -> None:
        """Checks that no more handlers go on than the limit allows, with one that is called now."""
        limit = self._limit(handler_run)
        if limit is None:
            return
        others = [one for one in self.handler_runs if one is not handler_run and self._acts(one)]
        count = 1 + sum(self._limit(one) == limit for one in others)
        if count > limit.most:
            name = " ".join(filter(None, limit.name))
            what = f"{count} of {name} go on, and {limit.most} may"
            raise Violation("LIMIT", what, item=handler_run.call.item.id)

    def _limit(self, handler_run: HandlerRun) -> Limit | None:
        item = handler_run.call.item
        concurrency = self.resolve(item.type, "{}").concurrency
        if concurrency is None:
            return None
        return Limit(item.type, concurrency.value_of(item.params), concurrency.most)

    def _acts(self, one: HandlerRun) -> bool:
        return one.process.runs and one.process.went_on <= self.timeline.now - 2 * BEAT
