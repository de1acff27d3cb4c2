"""The times to come of an item, as `next` and the pages show them. Nothing is decided by them."""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from blackboard.model import Item, Outcome, State, replace
from blackboard.rules.due import is_closed, is_missed
from blackboard.rules.next_run import part_of_jitter, ready_for
from blackboard.rules.transitions import claimed, passed_over, put_off, released, resumed, run_of
from blackboard.schedule.schedule import Every, slots_after
from blackboard.spec import RunSettings

MOST_COUNTED = 10_000
"""The most runs left of `max_runs` that are counted one by one."""


def upcoming(
    item: Item, settings: RunSettings, *, now: datetime, after: datetime | None = None
) -> Iterator[datetime]:
    """When an item runs, if each run starts as soon as it may, takes no time and is ok: when the
    pending run was ready, which may be in the past, then the times after it; later than `after`, if
    given. A paused item counts as if it were resumed; an item that is done, or removed, has no
    times. Far from now, an `every` counts as if there were no windows on the way, and a `max_runs`
    that is thousands of runs away as if there were none.
    """
    if item.state in {State.DONE, State.REMOVED}:
        return
    if item.is_paused:
        item = resumed(item, item.paused, settings=settings, now=now)
    is_pending = not item.running
    while item.running or item.waits:
        if item.running:
            item = released(item, run_of(item, Outcome.OK, now=now), settings=settings, fraction=0)
            if after is not None and item.waits and item.ready >= now:
                item = _brought_near(item, settings, after)
            continue
        now = max(now, item.ready)
        if is_missed(item, now=now, settings=settings):
            item = passed_over(item, settings=settings, now=now)
        elif is_closed(item, now=now, settings=settings):
            item = put_off(item, settings=settings, now=now)
        else:
            at = item.ready if is_pending else now
            if after is None or at > after:
                yield at
            is_pending = False
            item = claimed(item, settings=settings, owner=item.owner, now=now)


def _brought_near(item: Item, settings: RunSettings, after: datetime) -> Item:
    """The item where it waits for its first slot that may be run later than `after`, or done, if
    there is none; as it is, where it waits for no slot of its schedule, or for its first time: that
    may lie in a window, whose end may be later than `after`.
    """
    schedule, is_apart = settings.schedule, item.is_unscheduled or item.is_planned_first
    if schedule is None or is_apart or item.ready > after:
        return item
    if isinstance(schedule, Every):
        passed = after
        begin = item.slot + (after - item.slot) // schedule.interval * schedule.interval
    else:
        passed = begin = max(item.slot, after - part_of_jitter(item.id, settings))
    most = None
    if schedule.limits.runs is not None:
        left = schedule.limits.runs - item.runs - 1
        if left <= MOST_COUNTED:
            begin, most = item.slot, left  # each slot on the way is a run that counts
    for number, slot in enumerate(islice(slots_after(schedule, begin), most), 1):
        if slot > passed:
            ready = ready_for(item.id, slot, settings=settings, first=False)
            return replace(item, slot=slot, planned=slot, ready=ready, runs=item.runs + number)
    return replace(item, state=State.DONE)
