"""The times to come of an item, as `next` and the pages show them. Nothing is decided by them."""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from blackboard.model import Item, State, replace
from blackboard.rules.due import is_closed, is_missed
from blackboard.rules.next_run import jittered, missed_until, part_of_jitter, ready_for
from blackboard.schedule.schedule import Every, opens, slots_after
from blackboard.spec import RunSettings


def upcoming(
    item: Item, settings: RunSettings, *, now: datetime, after: datetime | None = None
) -> Iterator[datetime]:
    """The pending run, and the slots of the schedule after it, each with the item's part of the
    jitter; later than `after`, if given. A paused item counts as if it were resumed; an item that
    is done, or removed, has no times.
    """
    schedule = settings.schedule
    if schedule is None or schedule.limits.runs is None:
        yield from _upcoming(item, settings, now=now, after=after)
        return
    left = max(schedule.limits.runs - item.runs, 1) - item.running
    for at in islice(_upcoming(item, settings, now=now), left):
        if after is None or at > after:
            yield at


def _upcoming(
    item: Item, settings: RunSettings, *, now: datetime, after: datetime | None = None
) -> Iterator[datetime]:
    """The same, without regard to a number of runs."""
    if item.state in {State.DONE, State.REMOVED}:
        return
    schedule, wait = settings.schedule, part_of_jitter(item.id, settings)
    pending = None if item.running else _pending(item, settings, now=now)
    if pending is not None and (after is None or pending > after):
        yield pending
    if schedule is None:
        return
    started = item.start if item.running and item.start else max(pending or item.ready, now)
    if isinstance(schedule, Every):
        if after is not None and after > started:
            started += (after - started) // schedule.interval * schedule.interval
        yield from slots_after(schedule, started)
        return
    is_passed_over = pending is None and not item.running
    passed = missed_until(item, settings=settings, now=now) if is_passed_over else started
    passed = max(item.slot, passed)
    if item.slot != item.planned and item.planned > passed:
        passed = item.planned
        ready = jittered(schedule, item.planned, wait)
        if after is None or ready > after:
            yield ready
    for slot in slots_after(schedule, passed if after is None else max(passed, after - wait)):
        ready = jittered(schedule, slot, wait)
        if after is None or ready > after:
            yield ready


def _pending(item: Item, settings: RunSettings, *, now: datetime) -> datetime | None:
    """When the run in hand may start; None: not at all, as a walk finds then."""
    at = max(item.ready, now)
    if item.is_paused and settings.missed != "none":
        item = replace(item, ready=at)  # as it is once it is resumed
    if is_missed(item, now=at, settings=settings):
        return None
    if not is_closed(item, now=at, settings=settings):
        return item.ready
    end = opens(settings.schedule, at)
    return end and ready_for(item.id, end, settings=settings, first=False)
