"""The status of an item, in the words that `show` and its filters use. Pure.

    stale     it is running, and its lock was not renewed for longer than its lease
    running   a worker holds its lock
    overdue   it is active, waits, and has been ready for longer than is usual
    failed    its last run, or what became of it, was no success; failures in a row are counted
    waiting   it is active and its token lies there, due or not
    active, paused, done   what an operator decided, or what became of it

Several may hold at once. Nothing here decides what a worker does; see `rules/due.py`.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from blackboard.model import Item, Lock, Outcome
from blackboard.rules.due import is_stale

STATES = ("active", "paused", "done", "running", "overdue", "failed", "stale", "waiting")
OVERDUE_AFTER = timedelta(minutes=1)
"""A worker walks once in a cycle; what is ready for longer than that is late."""


class ItemStatus(Struct, frozen=True):
    """An item with the lock it had, and what is to be said of it."""

    item: Item
    lock: Lock | None
    stale: bool
    overdue: bool
    silent: float | None = None
    """Seconds since the worker that runs it was last seen, where it should have been seen since and
    that was read."""

    @property
    def running(self) -> bool:
        return self.item.running

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
    """`now` and `resolution` are the store's. A lock of another fence has moved on and says
    nothing about this item as it was read.
    """
    mine = lock if lock is not None and item.running and lock.fence == item.fence else None
    return ItemStatus(
        item,
        mine,
        stale=mine is not None and is_stale(mine, resolution=resolution),
        overdue=item.waits and now - item.ready > overdue_after,
    )


def statuses_of(
    items: Iterable[Item],
    locks: Mapping[str, Lock],
    *,
    now: datetime,
    resolution: float,
    overdue_after: timedelta = OVERDUE_AFTER,
) -> Iterator[ItemStatus]:
    """Of many items; `locks` by id."""
    for item in items:
        yield status_of(
            item,
            locks.get(item.id),
            now=now,
            resolution=resolution,
            overdue_after=overdue_after,
        )
