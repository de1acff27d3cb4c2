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
    the item wants no missed runs, and the slot is missed, or it
    is a time without runs                                          pass over
    else it is a time without runs                                  put off until that ends

Age is the store's, never a worker's: two clocks are never compared. It must exceed the lease by
the resolution of the store's stamps, so that rounding never takes a lock early.
"""

from collections.abc import Container
from datetime import datetime, timedelta
from enum import StrEnum

from blackboard.model import VERSION, Item, Lock, Permit, Token
from blackboard.schedule.schedule import ALONE, Every, interval_of, opens
from blackboard.spec import INTERVAL, RunSettings

SHORTEST_DEFAULT_LEASE = timedelta(seconds=10)
"""Of a lease that nothing sets."""
LONGEST_DEFAULT_LEASE = timedelta(minutes=5)
"""Of a lease that nothing sets: how long the item of a dead worker waits at the most."""
SHORTEST_DEFAULT_LIMIT = timedelta(minutes=1)
"""Of a time limit that nothing sets."""
LONGEST_RENEWAL = 60.0
"""Seconds between renewals at the most: how soon an unlock or a removal is noticed."""
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
    """About a waiting token. `now` is the store's."""
    if token.version > VERSION or token.type not in types or token.ready > now:
        return Move.LEAVE
    if is_missed(token, now=now, settings=settings):
        return Move.SKIP
    return Move.PUT_OFF if is_closed(token, now=now, settings=settings) else Move.RUN


def is_missed(one: Item | Token, *, now: datetime, settings: RunSettings) -> bool:
    """Whether the slot came and went unseen, or may not be run now, and its item wants no such
    runs. An `every`, a retry, and what an operator asked for are never missed.
    """
    by_the_clock = settings.schedule is not None and not isinstance(settings.schedule, Every)
    if settings.missed != "none" or not by_the_clock or not _is_scheduled(one):
        return False
    late = now - max(one.slot, one.ready)
    return late > settings.missed_after or is_closed(one, now=now, settings=settings)


def is_closed(one: Item | Token, *, now: datetime, settings: RunSettings) -> bool:
    """Whether it is a time without runs for the item. A retry, and what an operator asked for, may
    run then.
    """
    return _is_scheduled(one) and opens(settings.schedule, now) != now


def _is_scheduled(one: Item | Token) -> bool:
    return one.attempt == 1 and one.slot == one.planned


def decide_lock(
    lock: Lock,
    *,
    owner: str,
    types: Container[str],
    in_flight: Container[str],
    resolution: float,
    given_up: Container[str] = (),
) -> Move:
    """About a lock. `in_flight` holds the nonces of every task and batch of this worker,
    `given_up` those of runs that have ended and could not be released: they are as any other's.
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
    """Whether attempt number `attempt`, abandoned, is followed by another at once. Without an end
    to it, a handler that kills its worker would end one worker after the other. One that was seen
    to do so, because the loop stood still in it, has a second attempt and no third.
    """
    if stood_still:
        return attempt < STANDSTILLS
    return attempt <= max(retries, TAKEOVERS)


def lease(settings: RunSettings, slot: datetime) -> timedelta:
    """How long a lock may go untouched: as set, else the interval, but no less than ten seconds
    and, unless it is set to the interval, no more than five minutes.
    """
    if isinstance(settings.stale_after, timedelta):
        return settings.stale_after
    found = max(interval(settings, slot), SHORTEST_DEFAULT_LEASE)
    return found if settings.stale_after == INTERVAL else min(found, LONGEST_DEFAULT_LEASE)


def time_limit(settings: RunSettings, slot: datetime) -> timedelta | None:
    """How long a handler may run: as set, else the interval, a minute at the least. None: a pump
    runs until it is asked to end.
    """
    if settings.endless:
        return None
    return settings.timeout or max(interval(settings, slot), SHORTEST_DEFAULT_LIMIT)


def interval(settings: RunSettings, slot: datetime) -> timedelta:
    """An item's interval: `every`, or the shortest time between the next few slots; one hour when
    there are none. It is the schedule's own: a first run or a `run now` may come at any time, and
    has as much of it as any other.
    """
    if settings.schedule is None:
        return ALONE
    return interval_of(settings.schedule, slot)


def renew_every(stale_after: float) -> float:
    """Seconds between renewals: a third of the lease, so that two may be lost; at least every
    minute, so that a lost lock is noticed.
    """
    return min(stale_after / 3, LONGEST_RENEWAL)


def deadline(sent: float, stale_after: float) -> float:
    """Until when the holder may trust its lock, on the monotonic clock on which the claim, or the
    renewal that was acknowledged, was first sent. It is earlier than any worker may take the lock:
    the store's stamp is not older than the sending.
    """
    return sent + stale_after * HOLDERS_SHARE
