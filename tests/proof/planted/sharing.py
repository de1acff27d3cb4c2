"""Bugs of groups and elections: switches, as in planted.py, and the broken pieces beside them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from blackboard.model import Lock, Token, replace
from blackboard.protocol import claims
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim
from blackboard.rules import grab, shares
from blackboard.rules.due import Move, decide_lock
from blackboard.rules.shares import Decision, Picture
from blackboard.sharing import looks, partitions
from blackboard.sharing.election import Election
from blackboard.sharing.looks import Pace
from blackboard.sharing.partitions import GroupWorker
from blackboard.worker import heartbeat
from tests.proof.planted.planting import Planted
from tests.proof.planted.scenarios import (
    by_people,
    by_races,
    by_workers,
    paused_and_replaced,
    raced_without_a_store,
    without_a_store,
)

# ---- shares

_honest_decide = shares.decide


def releases_while_something_waits(picture: Picture, me: str, **about: Any) -> Decision:
    decision = _honest_decide(picture, me, **about)
    nothing_waits = replace(picture, free={}, stale={}, held={**picture.held})
    too_many = _honest_decide(nothing_waits, me, **about).release
    return decision if decision.take else replace(decision, release=too_many)


async def sees_no_pause(_worker: GroupWorker, picture: Picture) -> Picture:
    return picture


def rounded_up(count: int, held: Mapping[str, int], _paused: Mapping[str, int]) -> dict[str, int]:
    return dict.fromkeys(held, math.ceil(count / len(held)))


def is_never_late(_pace: Pace, _now: float, *, a_round: float) -> bool:
    return False


async def leaves_it_alone(_worker: GroupWorker, _lock: Lock) -> None:
    """No worker takes a stale lock."""


def adopts_what_it_holds(lock: Lock, **about: Any) -> Move:
    return decide_lock(lock, **{**about, "in_flight": set()})


# ---- renewals


async def drops_the_batch(
    board: BoardTable, asked: Sequence[tuple[Claim, str]]
) -> tuple[Claim, ...]:
    """One lock that is gone, and none of the batch is renewed."""
    renewed = await _honest_renew_all(board, asked)
    return tuple(renewed) if len(renewed) == len(asked) else ()


_honest_renew_all = claims.renew_all


# ---- elections


def takes_a_stale_lock_for_a_leader(_candidate: Election, found: Lock | Token) -> str | None:
    return found.owner if isinstance(found, Lock) else None


# ---- races


def whatever_the_rows_say(*_: object) -> bool:
    return True


def leaves_marks_alone(step: grab._Step, name: str, value: str | None) -> None:
    if value is None:
        _honest_found_mark(step, name, value)


_honest_found_mark = grab._Step._found_mark


SHARING = (
    Planted(
        name="greedy",
        without="a worker counts neither what is free nor what is stale when it releases",
        patches=((partitions, "decide", releases_while_something_waits),),
        shows="MOVED",
        walks=False,
        draw=by_workers,
    ),
    Planted(
        name="rounded up",
        without="the share of all workers is partitions / workers, rounded up",
        patches=((shares, "shares", rounded_up),),
        shows="SHARES",
        walks=False,
        draw=by_workers,
    ),
    Planted(
        name="paused and released",
        seldom=True,
        without="a worker releases paused partitions for others, which may not take them",
        patches=((GroupWorker, "_with_items", sees_no_pause),),
        shows="MOVED",
        walks=False,
        draw=paused_and_replaced,
    ),
    Planted(
        name="newcomer",
        seldom=True,
        without="a worker counts from its first announcement on",
        patches=((looks, "_announced_twice", lambda _: True),),
        shows="MOVED",
        walks=False,
        draw=by_workers,
    ),
    Planted(
        name="left to die",
        without="the stale lock of a partition is never overridden",
        patches=((GroupWorker, "_override", leaves_it_alone),),
        shows="UNOWNED",
        walks=False,
        draw=by_workers,
    ),
    Planted(
        name="adopted twice",
        without="a worker adopts locks that its own pumps run under",
        patches=((partitions, "decide_lock", adopts_what_it_holds),),
        shows="TWO PUMPS",
        walks=False,
        draw=by_workers,
    ),
    Planted(
        name="unguarded",
        seldom=True,
        without="a holder gives way to each node that has won a race, as published",
        patches=(
            (grab._Step, "_may_compete_for", whatever_the_rows_say),
            (grab._Step, "_yields_to", whatever_the_rows_say),
        ),
        shows="MOVED",
        walks=False,
        draw=by_races,
    ),
    Planted(
        name="won by the dead",
        seldom=True,
        without="a race that was won by a node which has died is won for ever",
        patches=((grab._Step, "_found_mark", leaves_marks_alone),),
        shows="UNOWNED",
        walks=False,
        draw=by_races,
    ),
    Planted(
        name="dead leader",
        without="the stale lock of a leader is never overridden",
        patches=((Election, "_leader_of", takes_a_stale_lock_for_a_leader),),
        shows="UNLED",
        walks=False,
        draw=by_workers,
    ),
    Planted(
        name="standstill",
        without="a worker overrides locks as soon as it comes back",
        patches=((Pace, "looked", is_never_late),),
        shows="STANDSTILL",
        walks=False,
        draw=without_a_store,
    ),
    Planted(
        name="standstill in a race",
        seldom=True,
        without="a worker that has won a race overrides a lock as soon as it comes back",
        patches=((Pace, "looked", is_never_late),),
        shows="STANDSTILL",
        walks=False,
        draw=raced_without_a_store,
    ),
    Planted(
        name="batch dropped",
        without="a batch of renewals of which one is refused counts as refused for all",
        patches=((heartbeat, "renew_all", drops_the_batch),),
        shows="NOT LOST",
        walks=False,
        draw=by_people,
    ),
    Planted(
        name="past its deadline",
        without="a leader leads until it hears that its lock is gone",
        patches=((Claim, "deadline", property(lambda _: math.inf)),),
        shows="TERM",
        walks=False,
        draw=without_a_store,
    ),
)
