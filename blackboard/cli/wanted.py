"""Which items `show` is asked for, and in which order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from blackboard.cli.gather import Gathered, gather
from blackboard.protocol.reading import BoardTable
from blackboard.rules.status import OVERDUE_AFTER, ItemStatus

SORTS: dict[str, Callable[[ItemStatus], Any]] = {
    "id": lambda one: one.item.id,
    "type": lambda one: one.item.type,
    "schedule": lambda one: one.item.schedule,
    "state": lambda one: one.item.state,
    "start": lambda one: one.item.start,
    "stop": lambda one: one.item.stop,
    "outcome": lambda one: one.item.outcome,
    "next": lambda one: one.item.ready if one.waiting else None,
    "owner": lambda one: one.item.owner or None,
    "failures": lambda one: one.item.failures,
    "runs": lambda one: one.item.runs,
}
"""None: the item has no such thing, and comes last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A question to the board."""

    ids: Sequence[str] = ()
    exact: bool = False
    types: Sequence[str] = ()
    states: Sequence[str] = ()
    """Any of them."""
    sort: str = "id"
    reverse: bool = False
    overdue: timedelta = OVERDUE_AFTER

    async def read(self, board: BoardTable) -> tuple[Gathered, list[ItemStatus]]:
        """What was read, and of it what is wanted."""
        read = await gather(board, self.ids, exact=self.exact, overdue_after=self.overdue)
        return read, self.chosen(read.statuses)

    def chosen(self, statuses: Sequence[ItemStatus]) -> list[ItemStatus]:
        """What is wanted of `statuses`, in order; within it, by id."""
        found = [
            one
            for one in statuses
            if (not self.types or one.item.type in self.types)
            and (not self.states or any(one.has(state) for state in self.states))
        ]
        key = SORTS[self.sort]
        have = [one for one in found if key(one) is not None]
        have.sort(key=key, reverse=self.reverse)
        return have + [one for one in found if key(one) is None]
