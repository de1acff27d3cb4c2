"""The runs of an item that operators asked for: each has its turn, in order, with its own params.

An item has one run in hand: the one that waits or runs, with its `slot` and `once`. Requests queue
behind it in `requests`, and the first of them is taken in hand when the run in hand has ended for
good: its retries, its takeovers and what a shutdown put back come first. So a request outlasts the
failure, the loss and the cancelling of any other run.

    the item                                  a request is
    ----------------------------------------  ------------------------------------------------
    waits for its schedule, or is done        in hand at once, before the slot that is planned
    waits for a retry                         behind that retry, which is due at once
    runs, or waits for another request        behind it, or behind the last in the queue

A request without params joins the last one in line, if that has none either and has not started,
or the retry: then one run is for both.

The slot of a request is the time of asking, and its identity: it is never the slot that the
schedule has planned, and two requests are two milliseconds apart at least, since a slot may make
way by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from blackboard.model import NEVER, Claim, Item, Request, State

LONGEST_QUEUE = 100
"""Requests that wait behind the run in hand, at the most."""
MILLISECOND = timedelta(milliseconds=1)
APART = 2 * MILLISECOND


class HasRequests(Protocol):
    """An item, a claim or a plan."""

    @property
    def requests(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """An item after a request: the slot of the run that is for it, and what comes before."""

    item: Item
    slot: datetime
    ahead: int
    """Runs that come first, the running one included."""
    joined: bool = False
    """Whether the run was asked for before, or is a retry."""


def requests_of(one: HasRequests) -> tuple[Request, ...]:
    """What waits behind the run in hand, the next one first."""
    return msgspec.json.decode(one.requests, type=tuple[Request, ...]) if one.requests else ()


def in_line(item: Item) -> tuple[datetime, ...]:
    """The slots of the run in hand and of all requests behind it."""
    return item.slot, *(one.slot for one in requests_of(item))


def requests_text(requests: Sequence[Request]) -> str:
    """Requests as they stand in an item's column."""
    return msgspec.json.encode(requests).decode() if requests else ""


def is_asked_for(one: Item | Claim) -> bool:
    """Whether the run in hand is one that an operator asked for."""
    return one.slot != one.planned


def requested(item: Item, *, name: str, once: str, now: datetime) -> Requested:
    """The item after one more run was asked for at `now`; `once` is JSON of params, or ""."""
    queue = requests_of(item)
    retried = item.waits and item.attempt > 1
    put_back = item.waits and bool(queue)
    in_hand = item.running or retried or put_back or (item.waits and is_asked_for(item))
    if not in_hand:
        beside = NEVER if item.state is State.DONE else item.planned
        slot = slot_asked_for(now, beside=beside)
        after = replace(
            item,
            state=State.ACTIVE,
            slot=slot,
            ready=now,
            planned=beside,
            attempt=1,
            once=once,
        )
        return Requested(item=after, slot=slot, ahead=0)
    if retried:
        item = replace(item, ready=min(item.ready, now))
    ahead = len(queue) + 1
    if not once:
        if queue and not queue[-1].once:
            return Requested(item=item, slot=queue[-1].slot, ahead=ahead - 1, joined=True)
        if not queue and not item.running and not item.once:
            return Requested(item=item, slot=item.slot, ahead=0, joined=True)
    last = queue[-1].slot if queue else item.slot
    slot = max(now, last + APART)
    queue = (*queue, Request(name=name, slot=slot, once=once))
    return Requested(item=replace(item, requests=requests_text(queue)), slot=slot, ahead=ahead)


def slot_asked_for(moment: datetime, *, beside: datetime) -> datetime:
    """The slot of a run that was asked for at a moment. It makes way for the slot that is planned:
    that they are two says what an item waits for.
    """
    return moment - MILLISECOND if moment == beside else moment


def serves(slot: datetime, asked: datetime) -> bool:
    """Whether a slot is that of a run that was asked for with the slot `asked`. It may have made
    way since.
    """
    return asked - MILLISECOND <= slot <= asked
