"""The next times of an item and of a schedule. Pure."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from blackboard.model import Item, State, whole_milliseconds
from blackboard.schedule.schedule import Every, Schedule, next_due


def times_of(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    """All slots strictly later than `after`."""
    slot = next_due(schedule, after)
    while slot is not None:
        yield slot
        slot = next_due(schedule, slot)


def upcoming(
    item: Item,
    schedule: Schedule | None,
    *,
    now: datetime,
    after: datetime | None = None,
    wait: timedelta = timedelta(0),
) -> Iterator[datetime]:
    """The pending run, and the slots of the schedule after it; later than `after`, if given. `wait`
    is the item's part of the jitter, by which it is ready after a slot. A paused item counts as if
    it were resumed; an item that is done has no times.
    """
    if item.state is State.DONE:
        return
    if not item.running and (after is None or item.ready > after):
        yield item.ready
    if schedule is None:
        return
    started = item.start if item.running and item.start else max(item.ready, now)
    if isinstance(schedule, Every):
        if after is not None and after > started:
            started += (after - started) // schedule.interval * schedule.interval
        yield from times_of(schedule, started)
        return
    passed = max(item.slot, started - wait)
    if item.slot != item.planned and item.planned > passed:
        passed = item.planned
        if after is None or item.planned + wait > after:
            yield whole_milliseconds(item.planned + wait)
    for slot in times_of(schedule, passed if after is None else max(passed, after - wait)):
        ready = whole_milliseconds(slot + wait)
        if after is None or ready > after:
            yield ready
