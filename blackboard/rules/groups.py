"""The state of a partition of a group: whether a worker holds it; if not, whether that is usual.
Pure.

    held        a worker holds it, and its lease lasts
    paused      a person has paused it, and no worker holds it
    set back    it was released in the future: a clock was wrong, and nothing says for how long it
                has been without a worker
    failing     its pump failed soon after its start, and not for the first time
    unowned     it has had no worker for longer than a lease, as one that is done
    moving      it has had none for a lease at the most: it is between two workers

The first of these that holds counts. A pump never ends well, so its item counts all failures that
there ever were. One that has worked for a lease or longer, and failed, is run again at once and is
not failing. Not promised: that a pump which fails is found failing while it runs again.

An election is judged by the same time without a worker.
"""

import math
from datetime import datetime, timedelta
from enum import StrEnum

from blackboard.model import Item
from blackboard.rules.status import ItemStatus
from blackboard.rules.transitions import FAILING
from blackboard.rules.wrong_clock import says_future


class PartitionState(StrEnum):
    HELD = "held"
    PAUSED = "paused"
    SET_BACK = "set back"
    FAILING = "failing"
    UNOWNED = "unowned"
    MOVING = "moving"


class Partition(ItemStatus, frozen=True, kw_only=True):
    """A partition, its lock, and its state."""

    state: PartitionState
    free: timedelta
    """For how long it could have been held, and had no worker."""


def judged(
    partition: ItemStatus, *, lease: timedelta, now: datetime, resumed: datetime | None
) -> Partition:
    """The state of a partition at `now`, by the store's clock. `resumed` is when it was last
    resumed.
    """
    free = timedelta(0)
    if partition.holder:
        state = PartitionState.HELD
    elif partition.item.is_paused:
        state = PartitionState.PAUSED
    elif partition.item.waits and says_future(partition.item, now=now):
        state = PartitionState.SET_BACK
    else:
        free = _free_for(partition, now=now, resumed=resumed)
        late = PartitionState.UNOWNED if free > lease else PartitionState.MOVING
        state = PartitionState.FAILING if _is_failing(partition, lease) else late
    return Partition(
        partition.item,
        partition.lock,
        stale=partition.stale,
        overdue=partition.overdue,
        silent=partition.silent,
        state=state,
        free=free,
    )


def has_no_leader(
    partition: ItemStatus, *, lease: timedelta, now: datetime, resumed: datetime | None
) -> bool:
    """Whether an election that is not paused has had no leader for longer than its lease, or
    nothing says for how long: it was released in the future, or renewed before the host was
    started.
    """
    if partition.holder or partition.item.is_paused:
        return False
    if partition.lock is not None and not math.isfinite(partition.lock.age):
        return True
    if partition.item.waits and says_future(partition.item, now=now):
        return True
    return _free_for(partition, now=now, resumed=resumed) > lease


def ran_for(item: Item) -> timedelta:
    """How long the last run of a partition without a worker was."""
    return max(item.stop - item.start, timedelta(0)) if item.start and item.stop else timedelta(0)


def _is_failing(partition: ItemStatus, lease: timedelta) -> bool:
    """Whether its pump fails again and again, and no person has acknowledged that."""
    item = partition.item
    is_known = item.failures <= 1 or item.is_acknowledged
    return not is_known and item.waits and item.outcome in FAILING and ran_for(item) < lease


def _free_for(partition: ItemStatus, *, now: datetime, resumed: datetime | None) -> timedelta:
    since: datetime | None = None
    if partition.stale and partition.lock is not None:
        if math.isfinite(partition.lock.age):
            return timedelta(seconds=max(partition.lock.age - partition.lock.stale_after, 0.0))
        since = partition.item.start  # the host has booted since: the last renewal came no earlier
    elif not partition.item.running:
        since = _released_at(partition.item, resumed)
    return max(now - since, timedelta(0)) if since else timedelta(0)


def _released_at(item: Item, resumed: datetime | None) -> datetime:
    """Since when an item that does not run could have been held: since the end of its last run,
    however long it waits for the next, or since it was resumed; since it came due where it never
    ran, or where a person has acknowledged its failure.
    """
    if item.stop is None or item.is_acknowledged:
        return item.ready
    return item.stop if resumed is None else max(item.stop, resumed)
