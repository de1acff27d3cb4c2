"""Whether a worker takes an item, takes it over, or leaves it alone.

The rule is elmcity's, of 2009. A worker walks the table. An item that ran within its interval is
left alone; one whose interval has passed is run. An item that is running is left alone, unless it
was started longer than its interval ago: then its worker counts as dead, and its lock
is overridden.

What was a comparison of start and stop is here a matter of which row there is. A waiting token
says "stopped": it may be taken when it is ready, and its ready time was set from the last start.
A lock says "started and not stopped": it may be overridden when it was not renewed for
its `stale_after`. By default that is the interval, or five minutes where the interval is longer:
a live worker renews each minute, and the items of a dead one need not wait for days. With
`stale_after = "interval"` the four cases are those of 2009:

    stop after start, within the interval     token, not ready      leave
    stop after start, beyond the interval     token, ready          run
    stop before start, within the interval    lock, not stale       leave
    stop before start, beyond the interval    lock, stale           override

and four more came with locks that are renewed and workers that die in all ways:

    the type is unknown here, or the row's version is newer         leave
    the lock is this worker's, and none of its runs has it          adopt
    the item has `missed = "none"`, and its slot is missed or it is
    in a blackout now                                               pass over
    any other item that is in a blackout now                        put off until that ends

The age of a lock is by the store's clock alone: two clocks are never compared. It must exceed the
lease by the resolution of the store's stamps, so that no lock is taken early because of rounding.
"""

from collections.abc import Container
from datetime import datetime, timedelta
from enum import StrEnum

from blackboard.model import VERSION, Item, Lock, Permit, Token
from blackboard.schedule.schedule import Every, interval_of, opens
from blackboard.schedule.times import LONGEST
from blackboard.spec import INTERVAL, RunSettings

SHORTEST_DEFAULT_LEASE = timedelta(seconds=10)
"""The shortest lease that follows from an interval."""
LONGEST_DEFAULT_LEASE = timedelta(minutes=5)
"""The longest lease where no setting says one: the item of a dead worker waits no longer."""
SHORTEST_DEFAULT_LIMIT = timedelta(minutes=1)
"""The shortest time limit where no setting says one."""
LONGEST_RENEWAL = 60.0
"""The most seconds between renewals: an unlock or a removal is noticed within them."""
TAKEOVERS = 3
"""A slot is taken over from dead workers at least so often before its item waits for the next."""
STANDSTILLS = 2
"""Attempts of a slot after which an item waits for its next one, if the last ended its worker."""
HOLDERS_SHARE = 0.8
"""The part of the lease after which its holder stops trusting it. The rest is room for clock
rates that differ and for what the holder needs to stop a handler."""


class Move(StrEnum):
    """What a walk does about one row."""

    LEAVE = "leave"
    RUN = "run"
    SKIP = "skip"
    PUT_OFF = "put off"
    OVERRIDE = "override"
    ADOPT = "adopt"


def decide_token(
    token: Token, *, now: datetime, types: Container[str], settings: RunSettings
) -> Move:
    """Decides about a waiting token. `now` is by the store's clock."""
    if token.version > VERSION or token.type not in types or token.ready > now:
        return Move.LEAVE
    if is_missed(token, now=now, settings=settings):
        return Move.SKIP
    return Move.PUT_OFF if is_closed(token, now=now, settings=settings) else Move.RUN


def is_missed(row: Item | Token, *, now: datetime, settings: RunSettings) -> bool:
    """Whether the item has `missed = "none"`, and its slot is late or it is in a blackout now. An
    `every`, a retry, and a run that is for no slot of the schedule are never missed.
    """
    by_the_clock = settings.schedule is not None and not isinstance(settings.schedule, Every)
    if settings.missed != "none" or not by_the_clock or not _is_scheduled(row):
        return False
    late = now - max(row.slot, row.ready)
    return late > settings.missed_after or is_closed(row, now=now, settings=settings)


def is_closed(row: Item | Token, *, now: datetime, settings: RunSettings) -> bool:
    """Whether a blackout keeps the item from running now. A retry may run in it, and so may a run
    that is for no slot of the schedule: an operator asked for it, or gave the item another schedule
    while it ran, and it was put back.
    """
    return _is_scheduled(row) and opens(settings.schedule, now) != now


def _is_scheduled(row: Item | Token) -> bool:
    return row.attempt == 1 and row.slot == row.planned


def decide_lock(
    lock: Lock,
    *,
    owner: str,
    types: Container[str],
    in_flight: Container[str],
    resolution: float,
    given_up: Container[str] = (),
) -> Move:
    """Decides about a lock. `in_flight` holds the nonces of every task and batch of this worker,
    `given_up` those of runs that have ended and could not be released: their locks are treated as
    those of another worker.
    """
    if lock.version > VERSION:
        return Move.LEAVE
    if lock.owner == owner and lock.nonce not in given_up:
        return Move.LEAVE if lock.nonce in in_flight else Move.ADOPT
    if lock.type in types and is_stale(lock, resolution=resolution):
        return Move.OVERRIDE
    return Move.LEAVE


def is_stale(lock: Lock | Permit, *, resolution: float) -> bool:
    """Whether a lock, or a permit, was not renewed for longer than its lease."""
    return lock.age > lock.stale_after + resolution


def may_take_over(attempt: int, *, retries: int, stood_still: bool = False) -> bool:
    """Whether attempt number `attempt`, which was abandoned, is followed by another at once.
    Without a limit, a handler that kills its worker would end one worker after the other. One that
    `stood_still`, so that its worker was ended, has a second attempt and no third.
    """
    if stood_still:
        return attempt < STANDSTILLS
    return attempt <= max(retries, TAKEOVERS)


def lease(settings: RunSettings, slot: datetime) -> timedelta:
    """How long a lock is good without a renewal: as set, else the interval, but no less than ten
    seconds, and no more than five minutes or, if it is set to the interval, ten years.
    """
    if isinstance(settings.stale_after, timedelta):
        return settings.stale_after
    longest = LONGEST if settings.stale_after == INTERVAL else LONGEST_DEFAULT_LEASE
    return min(max(interval_of(settings.schedule, slot), SHORTEST_DEFAULT_LEASE), longest)


def time_limit(settings: RunSettings, slot: datetime) -> timedelta | None:
    """How long a handler may run: as set, else the interval, a minute at the least. None: a pump
    runs until it is asked to end.
    """
    if settings.endless:
        return None
    return settings.timeout or max(interval_of(settings.schedule, slot), SHORTEST_DEFAULT_LIMIT)


def renew_every(stale_after: float) -> float:
    """Seconds between renewals: a third of the lease, so that two may be lost; at least every
    minute, so that a lost lock is noticed.
    """
    return min(stale_after / 3, LONGEST_RENEWAL)


def deadline(sent: float, stale_after: float) -> float:
    """The moment until which the holder may trust its lock. `sent` is when the claim, or the last
    acknowledged renewal, was first sent; both are monotonic seconds. It is earlier than any worker
    may take the lock: the store's stamp is not older than `sent`.
    """
    return sent + stale_after * HOLDERS_SHARE
