"""When an item runs next: its slots, and the times from which they may be taken.

A slot is a due time of the schedule, and the identity of the run that serves it. A token for it is
ready at the slot, or later by the item's jitter. What comes after a run depends on `missed`, which
says what is done about the slots for which no worker was free:

    one    a run covers every slot up to its own start; if more passed while it ran, one more run
    all    each slot has its run: the one that waits, and the last `missed_limit` of the others
    none   slots that have passed are forgotten

A slot has passed when the item's part of the jitter has passed after it.

`Every` is measured from the last start, as in elmcity, also where an operator asked for that start:
so nothing of it is ever missed. A run that an operator asked for leaves the other schedules as they
were: it covers the slots up to its start as any other does, but for one that has params of its own.
A first time that a person named is kept, with any schedule, as long as it is later than the next
slot.

The slot of a run that was asked for is the time of the request. It is never the slot that the
schedule has planned, and two of them are two milliseconds apart at least, since a slot may be moved
by one (`slot_asked_for`).

A changed schedule counts from the change. If the item runs then, or waits for a retry or for a run
that was put back, the slot after that run is planned beside it at once: so no slot before the
change is made up for.
"""

import hashlib
from datetime import datetime, timedelta

from blackboard.model import NEVER, Item, State, whole_milliseconds
from blackboard.schedule.schedule import (
    Every,
    Once,
    Schedule,
    due_between,
    next_due,
    opens,
    without_limits,
)
from blackboard.spec import RunSettings

LONGEST_BACKOFF = timedelta(hours=1)
LONGEST_AFTER = timedelta(days=366)
"""The longest time until a retry that a handler asks for."""
MILLISECOND = timedelta(milliseconds=1)
APART = 2 * MILLISECOND
"""The least time between the slots of two runs that were asked for."""
TOLERANCE = timedelta(minutes=1)
"""The largest difference of times that is usual between hosts, or when a clock is corrected."""


# ---- the next slot


def planned_after(item: Item, *, settings: RunSettings, now: datetime) -> datetime | None:
    """The schedule's next slot after the item's run, which started at `item.start`; None: there is
    none. A start or slot in the future, where a clock was wrong, counts as now. After a run that
    was asked for, a planned slot that is to come stays if it is the first that was named; that of
    an earlier schedule counts no more.
    """
    schedule, start = settings.schedule, no_later(item.start or item.ready, now=now)
    if schedule is None:
        is_left = item.is_unscheduled and item.planned != NEVER
        is_kept = is_left and (item.planned > start or _is_owed(item, settings))
        return item.planned if is_kept else None
    if is_exhausted(schedule, item.runs + 1):
        return None
    if isinstance(schedule, Every):
        following = next_due(schedule, start)
        is_first = item.is_unscheduled and item.is_planned_first
        return item.planned if is_first and item.planned > (following or start) else following
    wait = part_of_jitter(item.id, settings)
    covered = _covered(item, settings, start=start, now=now, wait=wait)
    if item.is_unscheduled:
        return _planned_after_request(item, settings, schedule, covered=covered, now=now)
    following = next_due(schedule, covered)
    if settings.missed == "all" and following is not None and following <= now - wait:
        return due_between(schedule, covered, now - wait, settings.missed_limit)[0]
    return following


def _covered(
    item: Item, settings: RunSettings, *, start: datetime, now: datetime, wait: timedelta
) -> datetime:
    """The moment up to which the slots of the schedule are covered by the item's run, or are
    forgotten. `wait` is the item's part of the jitter.
    """
    slot = no_later(item.slot, now=now)
    if settings.missed == "all":
        return slot
    return max(slot, (now if settings.missed == "none" else start) - wait)


def _planned_after_request(
    item: Item, settings: RunSettings, schedule: Schedule, *, covered: datetime, now: datetime
) -> datetime | None:
    """The slot after a run that was asked for. Planned is what comes next by this schedule, a slot
    of an earlier one, or NEVER.
    """
    if item.planned == NEVER or (item.planned > now and not item.is_planned_first):
        return item.planned if _is_nudged(item, settings, now=now) else next_due(schedule, now)
    is_kept = item.planned > covered or _is_owed(item, settings)
    return item.planned if is_kept else next_due(schedule, covered)


def _is_owed(item: Item, settings: RunSettings) -> bool:
    """Whether a planned slot that has passed keeps its run after one that was asked for: each slot
    has its run, or the run that was asked for had params of its own.
    """
    return settings.missed == "all" or (settings.missed == "one" and bool(item.once))


def _is_nudged(item: Item, settings: RunSettings, *, now: datetime) -> bool:
    """Whether the planned slot is the schedule's, and not the next one only because the clock was
    set back a little since: the slots before it have had their runs.
    """
    schedule = settings.schedule
    if schedule is None or (item.schedule, item.timezone) != (settings.text, settings.timezone):
        return False
    latest = next_due(schedule, now + TOLERANCE)
    return latest is not None and now < item.planned <= latest


def missed_until(item: Item, *, settings: RunSettings, now: datetime) -> datetime:
    """The moment up to which slots are missed as well, of an item whose slot is missed: later ones
    are not late by `missed_after` yet.
    """
    wait = part_of_jitter(item.id, settings)
    return max(item.slot, now - settings.missed_after - wait - MILLISECOND)


def first_slot(settings: RunSettings, *, first: datetime | None, now: datetime) -> datetime:
    """The slot of a new item: `first` where an operator named it; else now for an `every`, or where
    there is no schedule, and the next slot of any other, if it has one.
    """
    schedule = settings.schedule
    if first is None and isinstance(schedule, Once):
        return slot_of(schedule)
    if first is None and schedule is not None and not isinstance(schedule, Every):
        first = next_due(schedule, now)
    return whole_milliseconds(first or opens(schedule, now) or now)


def is_exhausted(schedule: Schedule, runs: int) -> bool:
    """Whether an item that has run so often runs no more by its schedule. Each attempt counts."""
    return schedule.limits.runs is not None and runs >= schedule.limits.runs


def is_in_time(schedule: Schedule, slot: datetime) -> bool:
    """Whether a slot is not after the `until` of its schedule."""
    until = schedule.limits.until
    return until is None or slot <= until


def slot_after_edit(item: Item, *, settings: RunSettings, now: datetime) -> datetime | None:
    """The next slot of an item whose schedule was changed at `now`; None: there is none. An `at` is
    due at its time, an `every` from the last start, the others from now, or from the last start if
    that is later: the edit may have waited for its store. Without a schedule that can be
    computed here, what waits goes on waiting: a worker may have one. An `every` that never ran is
    not due before its first time.
    """
    schedule = settings.schedule
    if schedule is not None and is_exhausted(schedule, item.runs):
        return None
    if isinstance(schedule, Once):
        slot = slot_of(schedule)
        has_been = bool(item.start) and slot <= now
        return None if has_been or not is_in_time(schedule, slot) else slot
    if isinstance(schedule, Every):
        if item.start:
            return next_due(schedule, item.start)
        begins = opens(schedule, begins_at(item, now=now))
        return begins if begins and is_in_time(schedule, begins) else None
    if schedule is not None:
        return next_due(schedule, max(now, item.start or now))
    if item.state is State.DONE:
        return None
    return item.planned if item.start else now


def begins_at(item: Item, *, now: datetime) -> datetime:
    """When an `every` that never ran is due: now, but not before a first time that was named."""
    return max(now, item.first or now)


def slot_that_stays(item: Item, *, settings: RunSettings, now: datetime) -> datetime | None:
    """The planned slot, if it stays under a new schedule, whose limits have to allow it; else None.
    It stays if it has come, and only the limits are new; and of an item that never ran, if it is
    the first time that an operator named, or the new settings have no schedule. With `missed =
    "all"` a first time that has passed becomes now, since all slots after it are made up for.
    """
    slot = item.planned
    if not _has_come_by_same_times(item, settings, now=now):
        if not _is_first_that_stays(item, settings):
            return None
        if settings.schedule is not None and settings.missed == "all":
            slot = max(slot, whole_milliseconds(now))
    return slot if _is_allowed(slot, item, settings) else None


def _is_allowed(slot: datetime, item: Item, settings: RunSettings) -> bool:
    """Whether the limits of a new schedule allow a slot."""
    schedule = settings.schedule
    if schedule is None:
        return True
    return not is_exhausted(schedule, item.runs) and is_in_time(schedule, slot)


def _has_come_by_same_times(item: Item, settings: RunSettings, *, now: datetime) -> bool:
    """Whether the planned slot has come, and the new schedule differs in its limits alone."""
    same_times = without_limits(item.schedule) == without_limits(settings.text)
    return same_times and item.timezone == settings.timezone and NEVER < item.planned <= now


def _is_first_that_stays(item: Item, settings: RunSettings) -> bool:
    """Whether an item that never ran keeps its first slot. That of an `at` goes with the `at`."""
    is_first = item.start is None and (settings.schedule is None or item.is_planned_first)
    return is_first and not (item.schedule.startswith("at ") or isinstance(settings.schedule, Once))


def slot_of(schedule: Once) -> datetime:
    """The only slot of an `at`: its time, or the end of the windows that this time is in."""
    return opens(schedule, schedule.moment) or schedule.moment


def slot_asked_for(moment: datetime, *, beside: datetime) -> datetime:
    """The slot of a run that was asked for at a moment. It is a millisecond earlier where that is
    the planned slot: only a slot that is not the planned one shows that its run was asked for.
    """
    return moment - MILLISECOND if moment == beside else moment


def serves(slot: datetime, asked: datetime) -> bool:
    """Whether a slot belongs to the request whose slot was `asked`: it is the same moment, or a
    millisecond earlier.
    """
    return asked - MILLISECOND <= slot <= asked


def slots_in_line(item: Item) -> tuple[datetime, ...]:
    """The slots of the run in hand and of all requests behind it."""
    return item.slot, *(request.slot for request in item.requests)


# ---- when it is ready


def ready_for(item_id: str, slot: datetime, *, settings: RunSettings, first: bool) -> datetime:
    """When a slot's token may be taken. The item's own part of the jitter is always the same; an
    `Every` keeps the phase of its first run by itself.
    """
    if isinstance(settings.schedule, Every) and not first:
        return slot
    return jittered(settings.schedule, slot, part_of_jitter(item_id, settings))


def jittered(schedule: Schedule | None, slot: datetime, wait: timedelta) -> datetime:
    """A slot plus the item's part of the jitter; the slot alone, where a blackout has begun by
    then: else the item would be passed over at every such slot.
    """
    ready = slot + wait
    return ready if opens(schedule, ready) == ready else slot


def part_of_jitter(item_id: str, settings: RunSettings) -> timedelta:
    """How long after its slots an item is ready, at each slot the same; with an `Every`, after the
    first one alone. It is whole milliseconds, as slots are: so a slot has passed once it is ready.
    """
    return settings.jitter * phase(item_id) // MILLISECOND * MILLISECOND


def phase(item_id: str) -> float:
    """An item's own fraction in [0, 1): the part of its jitter it waits, the same every time, so
    that a herd stays spread over restarts.
    """
    digest = hashlib.sha256(b"phase:" + item_id.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:6]) / 2**48


def backoff(attempt: int, *, base: timedelta, fraction: float) -> timedelta:
    """The wait before a retry, with full jitter: up to base, 2 base, 4 base ... an hour, or base if
    that is longer. It is no `Backoff`, as of requests: a retry may come at once, and its item says
    the base.
    """
    doubled = base.total_seconds() * 2 ** min(attempt - 1, 30)
    longest = max(base, LONGEST_BACKOFF).total_seconds()
    return timedelta(seconds=min(doubled, longest)) * fraction


# ---- a clock that was ahead


def is_ahead(moment: datetime | None, *, now: datetime) -> bool:
    """Whether a moment that should have passed has not: a clock was ahead when it was written, or
    is behind now.
    """
    return moment is not None and moment - now > TOLERANCE


def no_later(moment: datetime, *, now: datetime) -> datetime:
    """A moment that should have passed, or now."""
    return now if is_ahead(moment, now=now) else moment
