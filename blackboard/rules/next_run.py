"""When an item runs next: its slots, and the times from which they may be taken.

A slot is a due time of the schedule, and the identity of the run that serves it. A token for it is
ready at the slot, or later by the item's jitter. What comes after a run depends on what is done
about the slots for which no worker was free:

    one    a run covers every slot up to its own start; if more passed while it ran, one more run
    all    each slot has its run: the one that waits, and the last `missed_limit` of the others
    none   slots that have passed are forgotten

A slot has passed when the item's part of the jitter has passed after it.

`Every` is measured from the last start, as in elmcity, also where an operator asked for that start:
so nothing of it is ever missed. A run that an operator asked for leaves the other schedules as they
were: it covers the slots up to its start as any other does, but for one that has params of its own.
It leaves a first slot that was named and is later than the next one, whatever the schedule.

The slot of such a run is the time of asking. It is never the slot that the schedule has planned,
and two of them are two milliseconds apart at least, since a slot may make way by one.

Times in rows are the store's. On SQLite that is the host's wall clock: while it is years ahead,
every item is due, runs, and is planned from then on. When the clock is right again, nothing of that
is due for years, and nothing looks broken. But the item says that it ran in the future, or waits
for a time that its schedule does not lead to from now; or it is done before its time.

Not judged: an `at`, and the first slot that an operator named, which may be at any time. That is
what is planned also beside runs that were asked for before it. An item that never ran and has no
schedule may wait for a slot of the one that it had, so it is not judged either.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from blackboard.model import NEVER, Item, State, whole_milliseconds
from blackboard.phrases import stamp
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
"""Until the retry that a handler asks for."""
MILLISECOND = timedelta(milliseconds=1)
APART = 2 * MILLISECOND
"""The least time between the slots of two runs that were asked for."""
TOLERANCE = timedelta(minutes=1)
"""What hosts that agree on the time, and a clock that is nudged, explain."""
LONGEST_WAIT = timedelta(days=1)
"""A jitter is never called too long for less: settings may have changed since."""
ZONES_CHANGE = timedelta(hours=1)
"""By how much a slot may have moved since it was computed, when its zone has new rules."""


# ---- the next slot


def planned_after(item: Item, *, settings: RunSettings, now: datetime) -> datetime | None:
    """The schedule's next slot after the item's run, which started at `item.start`; None: there is
    none. A start or slot in the future, where a clock was wrong, counts as now.
    """
    schedule = settings.schedule
    if schedule is not None and is_exhausted(schedule, item.runs + 1):
        return None
    slot, start = no_later(item.slot, now=now), no_later(item.start or item.ready, now=now)
    if schedule is None or isinstance(schedule, Every):
        following = next_due(schedule, start) if schedule else None
        is_later = item.is_asked_for and item.planned > (following or start)
        return item.planned if is_later else following
    wait = part_of_jitter(item.id, settings)
    if settings.missed == "none":
        passed = max(slot, now - wait)
    elif settings.missed == "all":
        passed = slot
    else:
        passed = max(slot, start - wait)
    if item.is_asked_for:
        stays = settings.missed == "all" or (settings.missed == "one" and bool(item.once))
        if item.planned > passed or (stays and item.planned != NEVER):
            return item.planned
        return next_due(schedule, passed)
    following = next_due(schedule, passed)
    if settings.missed == "all" and following is not None and following <= now:
        return due_between(schedule, passed, now, settings.missed_limit)[0]
    return following


def missed_until(item: Item, *, settings: RunSettings, now: datetime) -> datetime:
    """Of an item whose slot is missed: slots up to this moment are missed as well, and later ones
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
    """Whether a slot is not after the last moment at which one may be."""
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
        begins = opens(schedule, _begins(item, now=now))
        return begins if begins and is_in_time(schedule, begins) else None
    if schedule is not None:
        return next_due(schedule, max(now, item.start or now))
    if item.state is State.DONE:
        return None
    return item.planned if item.start else now


def _begins(item: Item, *, now: datetime) -> datetime:
    """When an `every` that never ran is due: now, but not before a first time that was named."""
    return max(now, item.first or now)


def stays_planned(item: Item, *, settings: RunSettings, now: datetime) -> bool:
    """Whether the slot that is planned stays under a new schedule: what has come, where only the
    limits are others; and of an item that never ran the first one, which an operator named, or all
    where there is no schedule any more. The new limits have to allow it.
    """
    return _is_allowed(item, settings) and (
        _has_come_by_same_times(item, settings, now=now) or _is_first_that_stays(item, settings)
    )


def _is_allowed(item: Item, settings: RunSettings) -> bool:
    """Whether the limits of a new schedule leave what is planned."""
    schedule = settings.schedule
    if schedule is None:
        return True
    return not is_exhausted(schedule, item.runs) and is_in_time(schedule, item.planned)


def _has_come_by_same_times(item: Item, settings: RunSettings, *, now: datetime) -> bool:
    """Whether what is planned is due, and would be by a new schedule without its limits."""
    same_times = without_limits(item.schedule) == without_limits(settings.text)
    return same_times and item.timezone == settings.timezone and NEVER < item.planned <= now


def _is_first_that_stays(item: Item, settings: RunSettings) -> bool:
    """Whether an item that never ran keeps its first slot. That of an `at` goes with the `at`."""
    is_first = item.start is None and (settings.schedule is None or item.planned == item.first)
    return is_first and not (item.schedule.startswith("at ") or isinstance(settings.schedule, Once))


def slot_of(schedule: Once) -> datetime:
    """The one slot there is: its time, or the end of the windows that this is in."""
    return opens(schedule, schedule.moment) or schedule.moment


def slot_asked_for(moment: datetime, *, beside: datetime) -> datetime:
    """The slot of a run that was asked for at a moment. It is a millisecond earlier where that is
    the planned slot: a run was asked for where a row's slot is not the planned one.
    """
    return moment - MILLISECOND if moment == beside else moment


def serves(slot: datetime, asked: datetime) -> bool:
    """Whether a slot is that of a run that was asked for with the slot `asked`. It may have made
    way since.
    """
    return asked - MILLISECOND <= slot <= asked


def slots_in_line(item: Item) -> tuple[datetime, ...]:
    """The slots of the run in hand and of all requests behind it."""
    return item.slot, *(one.slot for one in item.requests)


# ---- when it is ready


def ready_for(item_id: str, slot: datetime, *, settings: RunSettings, first: bool) -> datetime:
    """When a slot's token may be taken. The item's own part of the jitter is always the same; an
    `Every` keeps the phase of its first run by itself.
    """
    if isinstance(settings.schedule, Every) and not first:
        return slot
    return jittered(settings.schedule, slot, part_of_jitter(item_id, settings))


def jittered(schedule: Schedule | None, slot: datetime, wait: timedelta) -> datetime:
    """A slot and the item's part of the jitter; the slot alone, where a time without runs has begun
    by then: else the item would be passed over at every such slot.
    """
    ready = whole_milliseconds(slot + wait)
    return ready if opens(schedule, ready) == ready else slot


def part_of_jitter(item_id: str, settings: RunSettings) -> timedelta:
    """How long after its slots an item is ready, at each slot the same; but for an `Every`."""
    return settings.jitter * phase(item_id)


def phase(item_id: str) -> float:
    """An item's own fraction in [0, 1): the part of its jitter it waits, the same every time, so
    that a herd stays spread over restarts.
    """
    digest = hashlib.sha256(b"phase:" + item_id.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:6]) / 2**48


def backoff(attempt: int, *, base: timedelta, fraction: float) -> timedelta:
    """Full jitter: anything up to base, 2 base, 4 base ... an hour, or base if that is longer. The
    retry of a run is no `Backoff` of requests: it may come at once, and its item says the base.
    """
    doubled = base.total_seconds() * 2 ** min(attempt - 1, 30)
    longest = max(base, LONGEST_BACKOFF).total_seconds()
    return timedelta(seconds=min(doubled, longest)) * fraction


# ---- times that only a wrong clock explains


class Planning(Struct, frozen=True, kw_only=True):
    """What an item is planned by."""

    settings: RunSettings
    schedules: Sequence[Schedule]
    """The present one first; and the one by which it was last planned, if that is another."""


def is_ahead(moment: datetime | None, *, now: datetime) -> bool:
    """Whether a moment that should have passed has not: a clock was ahead when it was written, or
    is behind now.
    """
    return moment is not None and moment - now > TOLERANCE


def says_future(item: Item, *, now: datetime) -> bool:
    """Whether the last start or stop of an item lies in the future."""
    return is_ahead(item.start, now=now) or is_ahead(item.stop, now=now)


def no_later(moment: datetime, *, now: datetime) -> datetime:
    """A moment that should have passed, or now."""
    return now if is_ahead(moment, now=now) else moment


def ahead(item: Item, planning: Planning, *, now: datetime) -> str:
    """What is wrong with an item's times; "" when a clock that is right explains them."""
    if item.state is State.REMOVED:
        return ""
    if is_set_back(item, planning, now=now):
        by = f" ({item.schedule})" if item.schedule else ""
        when = stamp(max(item.ready, item.planned))
        return f"is due {when}, later than its schedule{by} explains: a clock was wrong"
    if coming := still_to_come(item, planning, now=now):
        return f"is done, but is due {stamp(coming)} ({item.schedule}): a clock was wrong"
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
    return item.planned == item.first or item.schedule.startswith("at ")


def still_to_come(item: Item, planning: Planning, *, now: datetime) -> datetime | None:
    """The next slot of an item that is done, though the schedule by which it was planned goes on.
    An `every` that never ran has none before its first time.
    """
    if item.state is not State.DONE or item.running or not item.schedule:
        return None
    schedule, after = planning.schedules[-1], now + TOLERANCE
    if isinstance(schedule, Every) and item.start is None:
        after = _begins(item, now=after)
    return None if is_exhausted(schedule, item.runs) else next_due(schedule, after)


def slot_brought_back(item: Item, planning: Planning, *, now: datetime) -> datetime | None:
    """What is planned of an item that was set back, as it is; or, if that is too far, by its
    present schedule. An `every` is due at once, unless its last start is to be trusted, or a
    first time that was named is to come. None: there is no next slot.
    """
    if not _is_far(item, planning.schedules, now=now):
        return item.planned
    schedule = planning.schedules[0]
    if isinstance(schedule, Every):
        following = next_due(schedule, item.start) if item.start else _begins(item, now=now)
        return following if following and following <= _latest(item, schedule, now=now) else now
    return next_due(schedule, now)


def _waits_too_long(item: Item, planning: Planning, *, now: datetime) -> bool:
    """Whether the token is ready long after what it waits for."""
    settings, is_retry = planning.settings, item.attempt > 1
    if item.is_asked_for and not is_retry:
        return item.ready - now > TOLERANCE
    if is_retry and item.stop and is_ahead(item.stop, now=now) and item.ready >= item.stop:
        return True
    earliest = max(item.planned, now)
    if not is_retry:  # a slot may wait for the end of a time without runs
        ends = [opens(one, earliest) or earliest for one in planning.schedules]
        earliest = max(ends, default=earliest)
    is_every = {type(one) for one in planning.schedules} == {Every}
    if is_every and item.start and not is_retry:  # it has a jitter before its first run alone
        return item.ready - earliest > TOLERANCE
    if not (settings.is_whole or says_future(item, now=now)):
        return False  # its handler may say a backoff or a jitter of any length
    if is_retry:
        ended = no_later(item.stop or now, now=now)
        return item.ready - ended > max(settings.backoff, LONGEST_AFTER)
    return item.ready - earliest > max(settings.jitter, LONGEST_WAIT)


def _is_far(item: Item, schedules: Sequence[Schedule], *, now: datetime) -> bool:
    """Whether what is planned lies beyond the next slot. Without a schedule, an item that never ran
    may wait for a slot of one that it had.
    """
    if not schedules or item.planned == NEVER or is_named(item):
        return False
    if item.start is None and not item.schedule:
        return False
    return all(item.planned > _latest(item, one, now=now) for one in schedules)


def _latest(item: Item, schedule: Schedule, *, now: datetime) -> datetime:
    """The latest slot that may be planned at `now`, or was before a clock was nudged."""
    match schedule:
        case Once():
            return max(slot_of(schedule), now)
        case Every():
            following = now + schedule.interval if item.start else _begins(item, now=now)
            following += TOLERANCE
            return opens(schedule, following) or following
        case _:
            after = now + TOLERANCE
            return (next_due(schedule, after) or after) + ZONES_CHANGE
