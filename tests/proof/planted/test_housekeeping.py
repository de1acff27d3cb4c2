"""Housekeeping in simulated worlds: what it deletes harms nothing, and each of its conditions left
out is found.

People remove items, and add them anew about when their tombstones are deleted. Two housekeepers are
at it all the time, and stand still now and then.
"""

import random
from datetime import timedelta
from typing import Any

import pytest

from blackboard.model import Item, Run, State, replace
from blackboard.protocol import retention
from blackboard.protocol.board_table import BoardTable
from blackboard.rules.applied import REMEMBERED
from blackboard.simulator.changes import AppliedChange
from blackboard.simulator.network import Odds
from blackboard.simulator.scenario import (
    Fault,
    FaultPlan,
    Injection,
    Scenario,
    SimulatedItem,
    draw_plan,
)
from blackboard.simulator.world import World
from blackboard.spec import Spec
from blackboard.table import ANY, Delete
from tests.proof.form import LONG
from tests.proof.planted.hunting import ends_with
from tests.proof.planted.planting import Planted

ITEMS = tuple(
    SimulatedItem(id=f"item-{number}", spec=Spec(every="30s", stale_after="10s"), takes=5.0)
    for number in range(8)
)
EVERY = timedelta(seconds=10)
"""From one pass to the next."""
ABOUT = 30.0
"""Seconds before and after its deletion at which the id of a tombstone is added anew."""
MOST = 40
"""Worlds in which each bug is found."""
HONEST = 100 if LONG else 8
"""Worlds without a bug."""


def world(seed: int) -> World:
    """Two hours of two workers: each item lives, is removed, and is added anew, some times."""
    scenario = Scenario(
        seed=seed,
        items=ITEMS,
        workers=2,
        hours=2.0,
        shards=1 + seed % 2,
        page_rows=10 if seed % 3 == 0 else 1_000,
        cycle=timedelta(seconds=30),
        faults=frozenset(Fault) - {Fault.VERSIONS},
        trouble_every=60.0,
        odds=Odds(busy=0.02, lost=0.03, late=0.03),
        housekeeping=EVERY,
    )
    chance, lives = random.Random(seed), list[Injection]()
    for number in range(len(ITEMS)):
        at = chance.uniform(0.0, 900.0)
        while at < scenario.hours * 3600.0:
            lives.append(Injection(at, Fault.EDIT, number, chance.random(), "remove"))
            at += REMEMBERED.total_seconds() + chance.uniform(-ABOUT, 3 * ABOUT)
            lives.append(Injection(at, Fault.EDIT, number, chance.random(), "add"))
            at += chance.uniform(10.0, 600.0)
    plan = [*draw_plan(scenario).injections, *lives]
    return World(scenario, FaultPlan(injections=tuple(sorted(plan, key=lambda one: one.at))))


# ---- bugs


async def raises_no_floor(board: BoardTable, fence: int) -> None:
    """The row is written too late, or never."""


async def deletes_whatever_is_there(board: BoardTable, tombstones: Any) -> int:
    """Without the etags of the tombstones."""
    return await _honest_delete_each(board, [replace(one, etag=ANY) for one in tombstones])


async def deletes_every_run(board: BoardTable, tombstones: Any, *, pause: Any) -> Any:
    """Also those of a new life of the id."""
    endless = [replace(one, fence=10**9) for one in tombstones]
    return await _honest_delete_tombstones(board, endless, pause=pause)


def expires_at_once(item: Item, **_: Any) -> bool:
    """A sender that is in doubt does not find its name."""
    return item.state is State.REMOVED


_honest_delete_each = retention._delete_each
_honest_delete_tombstones = retention.delete_tombstones

BUGS = (
    Planted(
        name="floor",
        without="a tombstone is deleted, and its fence forgotten",
        patches=((retention, "raise_floor", raises_no_floor),),
        shows="FENCE|LATE|HISTORY|TWICE|ETAG",
    ),
    Planted(
        name="tombetag",
        without="the deletion of a tombstone does not state its etag",
        patches=((retention, "_delete_each", deletes_whatever_is_there),),
        shows="DELETED|ORPHAN",
    ),
    Planted(
        name="newruns",
        without="the history of a tombstone is deleted with that of the next life",
        patches=((retention, "delete_tombstones", deletes_every_run),),
        shows="DELETED",
    ),
    Planted(
        name="young",
        without="a tombstone is deleted at once",
        patches=((retention, "is_expired", expires_at_once),),
        shows="DELETED",
    ),
)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("bug", BUGS, ids=[one.name for one in BUGS])
def test_each_condition_that_is_left_out_is_found(bug: Planted) -> None:
    for seed in range(MOST):
        with bug.in_place():
            violation = ends_with(world(seed))
        if violation is not None and violation.kind in bug.kinds:
            assert ends_with(world(seed)) is None, f"seed {seed}, without any bug"
            return
    raise AssertionError(f"{bug.name} was not found in {MOST} worlds")


@pytest.mark.timeout(1800)
def test_what_is_deleted_harms_nothing() -> None:
    """Tombstones do go, and ids are added anew, with a fence above all that they had."""
    deleted, anew, pruned = list[str](), list[str](), list[str]()

    def look(change: AppliedChange) -> None:
        removed = any(
            isinstance(one.op, Delete) and isinstance(one.old, Item) for one in change.of(Item)
        )
        if removed:
            deleted.append(change.id)
        elif change.before is None and change.shadow.item is not None and change.id in deleted:
            anew.append(change.id)
            assert change.shadow.item.born > 0
        pruned.extend(change.id for one in change.of(Run) if isinstance(one.op, Delete))

    for seed in range(HONEST):
        made = world(seed)
        deleted.clear()
        made.watch(look)
        violation = ends_with(made)
        assert violation is None, f"seed {seed}: {violation}"
    assert len(anew) > 5 * HONEST
    assert len(pruned) > 20 * HONEST
