"""How an item stands now, in the words people ask for. Pure.

    stale     it is running, and the store has not seen its lock touched for longer than its lease
    running   somebody holds its lock
    overdue   it is active, waits, and has been ready for longer than is usual
    failed    its last run, or what became of it, was no success; failures in a row are counted
    waiting   it is active and its token lies there, due or not
    active, paused, done   what a person decided, or what became of it

Several may hold at once. Nothing here decides what a worker does; see `rules/due.py`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from blackboard.model import Item, Lock, Outcome
from blackboard.results import warnings_in
from blackboard.rules.due import is_stale

STATES = ("active", "paused", "done", "running", "overdue", "failed", "stale", "waiting")
OVERDUE_AFTER = timedelta(minutes=1)
"""A worker walks once in a cycle; what is ready for longer than that is late."""


@dataclass(frozen=True, slots=True)
class Standing:
    """An item with the lock it had, and what is to be said of it."""

    item: Item
    lock: Lock | None
    stale: bool
    overdue: bool

    @property
    def running(self) -> bool:
        return self.item.running

    @property
    def failing(self) -> bool:
        return self.item.failures > 0

    @property
    def warnings(self) -> list[str]:
        """What its last run said that was ok and needs a person all the same."""
        well = self.item.outcome is Outcome.OK and not self.failing
        return warnings_in(self.item.result) if well else []

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


def standing(
    item: Item,
    lock: Lock | None,
    *,
    now: datetime,
    resolution: float,
    overdue_after: timedelta = OVERDUE_AFTER,
) -> Standing:
    """`now` and `resolution` are the store's. A lock of another fence has moved on and says
    nothing about this item as it was read.
    """
    mine = lock if lock is not None and item.running and lock.fence == item.fence else None
    return Standing(
        item,
        mine,
        stale=mine is not None and is_stale(mine, resolution=resolution),
        overdue=item.waits and now - item.ready > overdue_after,
    )


def standings(
    items: Iterable[Item],
    locks: Mapping[str, Lock],
    *,
    now: datetime,
    resolution: float,
    overdue_after: timedelta = OVERDUE_AFTER,
) -> Iterator[Standing]:
    """Of many items; `locks` by id."""
    for item in items:
        yield standing(
            item,
            locks.get(item.id),
            now=now,
            resolution=resolution,
            overdue_after=overdue_after,
        )
