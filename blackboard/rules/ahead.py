"""What a clock that was wrong leaves behind, and how an item is brought back to the present.

Times in rows are the store's. On SQLite that is the host's wall clock: while it is years ahead,
every item is due, runs, and is planned from then on. When the clock is right again, nothing of that
is due for years, and nothing looks broken. But the item says that it ran in the future, or waits
for a time that its schedule does not lead to from now; or it is done before its time.

Not judged: an item that never ran, and the first slot that a person named, which may be at any
time. That is what is planned also beside runs that were asked for before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from blackboard.model import NEVER, Item, State
from blackboard.phrases import stamp
from blackboard.rules.clocks import TOLERANCE, is_ahead, no_later
from blackboard.rules.outcomes import ready_for, slot_of
from blackboard.rules.requests import slot_asked_for
from blackboard.schedule.schedule import Every, Once, Schedule, next_due
from blackboard.spec import RunSettings

LONGEST_WAIT = timedelta(days=1)
"""A backoff or a jitter is never called too long for less: settings may have changed since."""
ZONES_CHANGE = timedelta(hours=1)
"""By how much a slot may have moved since it was computed, when its zone has new rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """What an item is planned by."""

    settings: RunSettings
    schedules: Sequence[Schedule]
    """The present one first; and the one by which it was last planned, if that is another."""


def ahead(item: Item, planning: Planning, *, now: datetime) -> str:
    """What is wrong with an item's times; "" when a clock that is right explains them."""
    if item.state is State.REMOVED:
        return ""
    if is_set_back(item, planning, now=now):
        by = f" ({item.schedule})" if item.schedule else ""
        when = stamp(max(item.ready, item.planned))
        return f"is due {when}, later than its schedule{by} explains: a clock was wrong"
    if coming := _still_to_come(item, planning, now=now):
        return f"is done, but is due {stamp(coming)} ({item.schedule}): a clock was wrong"
    told = [
        f"{name} {stamp(moment)}"
        for name, moment in (("started", item.start), ("stopped", item.stop))
        if moment is not None and is_ahead(moment, now=now)
    ]
    if told:
        return f"says that it {' and '.join(told)}, which is in the future: a clock was wrong"
    return ""


def is_set_back(item: Item, planning: Planning, *, now: datetime) -> bool:
    """Whether an item, which does not run, waits for a time that nothing explains."""
    if item.running or item.start is None or item.state in {State.DONE, State.REMOVED}:
        return False
    return _waits_too_long(item, planning, now=now) or _is_far(item, planning.schedules, now=now)


def _still_to_come(item: Item, planning: Planning, *, now: datetime) -> datetime | None:
    """The next slot of an item that is done, though the schedule by which it ran goes on."""
    if item.state is not State.DONE or item.running or item.start is None or not item.schedule:
        return None
    return next_due(planning.schedules[-1], now + TOLERANCE)


def _waits_too_long(item: Item, planning: Planning, *, now: datetime) -> bool:
    """Whether the token is ready long after what it waits for."""
    settings, is_retry = planning.settings, item.attempt > 1
    if item.slot != item.planned and not is_retry:
        return item.ready - now > TOLERANCE
    is_every = any(isinstance(one, Every) for one in planning.schedules)
    if is_every and not is_retry:
        return item.ready - max(item.planned, now) > TOLERANCE
    ran_ahead = is_ahead(item.start, now=now) or is_ahead(item.stop, now=now)
    if not (settings.is_whole or ran_ahead):
        return False  # its handler may say a backoff or a jitter of any length
    if is_retry:
        return item.ready - now > max(settings.backoff, LONGEST_WAIT)
    return item.ready - max(item.planned, now) > max(settings.jitter, LONGEST_WAIT)


def _is_far(item: Item, schedules: Sequence[Schedule], *, now: datetime) -> bool:
    """Whether what is planned lies beyond the next slot."""
    if not schedules or item.planned in {NEVER, item.first}:
        return False
    return all(item.planned > _latest(one, now=now) for one in schedules)


def _latest(schedule: Schedule, *, now: datetime) -> datetime:
    """The latest slot that may be planned at `now`."""
    match schedule:
        case Once():
            return max(slot_of(schedule), now)
        case Every():
            return now + schedule.interval + TOLERANCE
        case _:
            return (next_due(schedule, now) or now) + ZONES_CHANGE


def brought_back(item: Item, planning: Planning, *, now: datetime) -> Item:
    """An item that does not run, as if its clock had been right: what is said to have happened
    later happened now; what nothing explains is planned anew. An `every` is due at once, since when
    it last started is not known. A run that was asked for, or is tried again, is due at once.
    """
    after = replace(item, stop=item.stop and no_later(item.stop, now=now))
    after = replace(after, start=item.start and no_later(item.start, now=now))
    if coming := _still_to_come(item, planning, now=now):
        return _planned(after, coming, planning)
    if not is_set_back(item, planning, now=now):
        return after
    planned: datetime | None = item.planned
    if _is_far(item, planning.schedules, now=now):
        planned = _next_slot(item, planning.schedules[0], now=now)
    asked = item.slot != item.planned
    if asked or (item.attempt > 1 and planned == item.planned):
        beside = planned or NEVER
        slot = slot_asked_for(no_later(item.slot, now=now), beside=beside) if asked else item.slot
        return replace(after, slot=slot, ready=min(item.ready, now), planned=beside)
    if planned is None:
        return replace(after, state=State.DONE, attempt=1, once="")
    return _planned(after, planned, planning)


def _planned(item: Item, slot: datetime, planning: Planning) -> Item:
    """The item waits for a slot."""
    state = State.PAUSED if item.is_paused else State.ACTIVE
    ready = ready_for(item.id, slot, settings=planning.settings, first=False)
    return replace(item, state=state, slot=slot, ready=ready, planned=slot, attempt=1, once="")


def _next_slot(item: Item, schedule: Schedule, *, now: datetime) -> datetime | None:
    if isinstance(schedule, Every):
        following = next_due(schedule, item.start) if item.start else now
        return following if following and following <= now + schedule.interval else now
    return next_due(schedule, now)
