"""Times that only a wrong clock explains: how they are found, and what is planned instead.

Times in rows are the store's. On SQLite that is the host's wall clock: while it is years ahead,
every item is due, runs, and is planned from then on. When the clock is right again, nothing of that
is due for years, and nothing looks broken. But the item says that it ran in the future, or waits
for a time that its schedule does not lead to from now; or it is done before its time.

Not judged: an `at`, and the first slot that an operator named, which may be at any time. Such a
time stays `planned` while runs that a person asked for go first. An item that never ran and has no
schedule may wait for a slot of the one that it had, so it is not judged either.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from blackboard.errors import BadInput
from blackboard.model import NEVER, Item, State
from blackboard.phrases import stamp
from blackboard.rules.next_run import (
    LONGEST_AFTER,
    TOLERANCE,
    begins_at,
    is_ahead,
    is_exhausted,
    no_later,
    slot_of,
)
from blackboard.schedule.limits import without_windows
from blackboard.schedule.schedule import Every, Once, Schedule, next_due, opens
from blackboard.spec import RunSettings

LONGEST_WAIT = timedelta(days=1)
"""No shorter wait by jitter is called too long: settings may have changed since."""
ZONES_CHANGE = timedelta(hours=1)
"""By how much a slot may have moved since it was computed, when its zone has new rules."""


class Planning(Struct, frozen=True, kw_only=True):
    """The settings and the schedule by which an item is planned."""

    settings: RunSettings
    written: Schedule | None
    """The schedule in its row, by which it was last planned. The settings may have another now."""

    @property
    def schedules(self) -> Sequence[Schedule]:
        """The schedules that may explain the planned slot."""
        both = (self.settings.schedule, self.written)
        return [moment for moment in dict.fromkeys(both) if moment is not None]


def says_future(item: Item, *, now: datetime) -> bool:
    """Whether the last start or stop of an item lies in the future."""
    return is_ahead(item.start, now=now) or is_ahead(item.stop, now=now)


def problem_of_times(item: Item, planning: Planning, *, now: datetime) -> str:
    """The problem with an item's times, in words; "" when a clock that is right explains them, or
    those of its schedule cannot be computed.
    """
    if item.state is State.REMOVED:
        return ""
    try:
        return _problem_of_times(item, planning, now=now)
    except BadInput:
        return ""


def _problem_of_times(item: Item, planning: Planning, *, now: datetime) -> str:
    schedule = without_windows(item.schedule)
    if is_set_back(item, planning, now=now):
        by = f" ({schedule})" if schedule else ""
        when = stamp(max(item.ready, item.planned))
        return f"is due {when}, later than its schedule{by} explains: a clock was wrong"
    if coming := still_to_come(item, planning, now=now):
        return f"is done, but is due {stamp(coming)} ({schedule}): a clock was wrong"
    in_future = [
        f"{name} {stamp(moment)}"
        for name, moment in (("started", item.start), ("stopped", item.stop))
        if moment is not None and is_ahead(moment, now=now)
    ]
    if in_future:
        says = " and ".join(in_future)
        return f"says that it {says}, which is in the future: a clock was wrong"
    return ""


def is_set_back(item: Item, planning: Planning, *, now: datetime) -> bool:
    """Whether an item, which does not run, waits for a time that nothing explains."""
    if item.running or item.state in {State.DONE, State.REMOVED}:
        return False
    return _waits_too_long(item, planning, now=now) or _is_far(item, planning.schedules, now=now)


def is_named(item: Item) -> bool:
    """Whether an operator may have named the time that is planned: an `at`, or a first one."""
    return item.is_planned_first or item.schedule.startswith("at ")


def still_to_come(item: Item, planning: Planning, *, now: datetime) -> datetime | None:
    """The next slot of an item that is done, though the schedule by which it was planned goes on.
    An `every` that never ran has none before its first time.
    """
    schedule, after = planning.written, now + TOLERANCE
    if item.state is not State.DONE or item.running or schedule is None:
        return None
    if isinstance(schedule, Every) and item.start is None:
        after = begins_at(item, now=after)
    return None if is_exhausted(schedule, item.runs) else next_due(schedule, after)


def slot_brought_back(item: Item, planning: Planning, *, now: datetime) -> datetime | None:
    """The slot to plan of an item that was set back: the planned one, or, if that is too far away,
    the next one by its present schedule. An `every` is due at once, unless its last start is to be
    trusted, or a first time that was named is to come. None: there is no next slot.
    """
    if not _is_far(item, planning.schedules, now=now):
        return item.planned
    schedule = planning.schedules[0]  # the present one, if there is one
    if isinstance(schedule, Every):
        following = next_due(schedule, item.start) if item.start else begins_at(item, now=now)
        return following if following and following <= _latest(item, schedule, now=now) else now
    return next_due(schedule, now)


def _waits_too_long(item: Item, planning: Planning, *, now: datetime) -> bool:
    """Whether the token is ready long after what it waits for. What is ready waits no more."""
    if item.ready <= now:
        return False
    if item.attempt > 1:
        return _is_long_for_retry(item, planning.settings, now=now)
    if not item.is_unscheduled:
        return _is_long_for_slot(item, planning, since=max(item.planned, now), now=now)
    if item.put_back:
        return _is_long_for_put_back(item, planning, now=now)
    return item.ready - now > TOLERANCE


def _is_long_for_retry(item: Item, settings: RunSettings, *, now: datetime) -> bool:
    if item.stop and is_ahead(item.stop, now=now) and item.ready >= item.stop:
        return True
    if _may_be_any_wait(item, settings, now=now):
        return False
    ended = no_later(item.stop or now, now=now)
    return item.ready - ended > max(settings.backoff, LONGEST_AFTER)


def _is_long_for_slot(item: Item, planning: Planning, *, since: datetime, now: datetime) -> bool:
    """Of a run that may wait from `since` on for the end of a time without runs."""
    ends = [opens(schedule, since) or since for schedule in planning.schedules]
    wait = item.ready - max(ends, default=since)
    is_every = {type(schedule) for schedule in planning.schedules} == {Every}
    if is_every and item.start:  # an `every` has jitter before its first run alone
        return wait > TOLERANCE
    if _may_be_any_wait(item, planning.settings, now=now):
        return False
    return wait > max(planning.settings.jitter, LONGEST_WAIT)


def _is_long_for_put_back(item: Item, planning: Planning, *, now: datetime) -> bool:
    """Of a run that was put back and is for no slot of the present schedule."""
    if any(schedule.limits.windows for schedule in planning.schedules):
        return _is_long_for_slot(item, planning, since=now, now=now)
    return item.ready - now > TOLERANCE


def _may_be_any_wait(item: Item, settings: RunSettings, *, now: datetime) -> bool:
    """Whether a handler that is not known here may say a backoff or a jitter of any length."""
    return not (settings.has_handler or says_future(item, now=now))


def _is_far(item: Item, schedules: Sequence[Schedule], *, now: datetime) -> bool:
    """Whether the planned slot lies beyond the next one. Without a schedule, an item that never ran
    may wait for a slot of a schedule that it had.
    """
    if not schedules or item.planned == NEVER or is_named(item):
        return False
    if item.start is None and not item.schedule:
        return False
    return all(item.planned > _latest(item, schedule, now=now) for schedule in schedules)


def _latest(item: Item, schedule: Schedule, *, now: datetime) -> datetime:
    """The latest slot that may be planned at `now`, or was before a clock was nudged."""
    match schedule:
        case Once():
            return max(slot_of(schedule), now)
        case Every():
            following = now + schedule.interval if item.start else begins_at(item, now=now)
            following += TOLERANCE
            return opens(schedule, following) or following
        case _:
            after = now + TOLERANCE
            return (next_due(schedule, after) or after) + ZONES_CHANGE
