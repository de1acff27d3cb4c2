"""Bugs of limits across workers: switches, as in planted.py, and the broken pieces beside them."""

import math
from typing import Any

from blackboard.protocol import permits as rows
from blackboard.protocol.permits import HeldPermit
from blackboard.protocol.rows import data_of
from blackboard.table import ANY, Insert, Op, Replace
from blackboard.worker import permits
from blackboard.worker.permits import Grant, Permits
from tests.proof.planted.planting import Planted
from tests.proof.planted.scenarios import limited


def takes_it_from_anyone(one: HeldPermit, found: Any) -> Op:
    data = data_of(one.permit)
    return Insert(one.row_key, data) if found is None else Replace(one.row_key, data, ANY)


def goes_on_without(self: Permits, nonce: str) -> None:
    del self._held[nonce]


def gives_it_back_at_once(self: Grant, item_id: str, _nonce: str) -> bool:
    self._permits.give_back([permit] if (permit := self._granted.pop(item_id, None)) else [])
    return True


def is_old_soon(one: Any, *, resolution: float) -> bool:
    return bool(one.age > rows.LEASE / 4 + resolution)


def _limit(name: str, without: str, *patches: tuple[Any, str, Any]) -> Planted:
    return Planted(
        name=name, without=without, patches=patches, shows="LIMIT", walks=False, draw=limited
    )


LIMITS = (
    _limit(
        "permit shared",
        "a permit that has just been taken over is taken over again",
        (rows, "_taking", takes_it_from_anyone),
    ),
    _limit(
        "permit lost",
        "a run whose permit is lost goes on",
        (Permits, "_lose", goes_on_without),
    ),
    _limit(
        "permit trusted",
        "a permit that could not be renewed in time is trusted all the same",
        (permits, "deadline", lambda *_: math.inf),
    ),
    _limit(
        "permit returned",
        "a permit is given back when its run begins",
        (Grant, "hold", gives_it_back_at_once),
    ),
    _limit(
        "permit impatience",
        "a permit is taken over before its lease is over",
        (rows, "is_stale", is_old_soon),
    ),
)
