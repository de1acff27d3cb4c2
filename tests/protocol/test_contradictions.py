"""Rows that contradict their item, as on a store that went back in time: none of them keeps the
item from being released, taken over, freed or changed.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from blackboard.model import Outcome, Run, replace
from blackboard.protocol import keys
from blackboard.protocol.batches import insert_next, overwriting
from blackboard.protocol.claims import override
from blackboard.protocol.edits import cancel, edit, pause, remove, unlock
from blackboard.protocol.releases import ReleaseOutcome, release
from blackboard.protocol.rows import data_of
from blackboard.spec import Spec
from blackboard.table import ANY, Conflict, ConflictKind, Delete, Insert, Merge, Op, Replace, Row
from tests.support.boards import Scene, finished, story

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

ANOTHER = "f" * 32
"""The nonce of a run that had the fence before the store went back."""


async def seen_before(scene: Scene, item_id: str = "davis") -> None:
    """The history has a run of the fence that runs now."""
    item = await scene.item(item_id)
    assert item.start is not None
    run = Run(
        id=item_id,
        type=item.type,
        nonce=ANOTHER,
        worker="me",
        fence=item.fence,
        attempt=1,
        slot=item.slot,
        start=item.start,
        stop=item.start,
        lag=0.0,
        outcome=Outcome.SUPERSEDED,
    )
    row = Insert(keys.run_key(item_id, item.fence), data_of(run))
    await scene.other.table.commit(scene.other.partition(item_id), [row])


async def released(scene: Scene) -> None:
    made = await scene.claimed()
    await seen_before(scene)
    done = await scene.let_go(made, result=1)
    assert (done.how, done.run.outcome) == (ReleaseOutcome.DONE, Outcome.OK)


async def taken_over(scene: Scene) -> None:
    await scene.claimed()
    await seen_before(scene)
    scene.later(hours=2)
    claim = await override(scene.board, await scene.lock(), owner="me")
    assert claim is not None
    await scene.let_go(claim)


async def paused_and_stale(scene: Scene) -> None:
    await scene.claimed()
    await seen_before(scene)
    await pause(scene.board, "davis", scene.mark())
    scene.later(hours=2)
    assert await override(scene.board, await scene.lock(), owner="me") is None


async def unlocked(scene: Scene) -> None:
    made = await scene.claimed()
    await seen_before(scene)
    assert (await unlock(scene.board, "davis", scene.mark(), fence=made.fence)).changed


async def cancelled(scene: Scene) -> None:
    made = await scene.claimed()
    await seen_before(scene)
    assert (await cancel(scene.board, "davis", scene.mark(), fence=made.fence)).changed


async def removed(scene: Scene) -> None:
    await scene.claimed()
    await seen_before(scene)
    assert (await remove(scene.board, "davis")).changed


ENDS = {
    "ok": released,
    "abandoned": taken_over,
    "abandoned ": paused_and_stale,
    "abandoned  ": unlocked,
    "cancelled": cancelled,
    "cancelled ": removed,
}


@pytest.mark.parametrize("outcome", ENDS)
@story
async def test_a_run_ends_though_the_history_has_its_fence(scene: Scene, outcome: str) -> None:
    end: Callable[[Scene], Awaitable[None]] = ENDS[outcome]
    await scene.add()
    await end(scene)
    assert not (await scene.item()).running
    assert [row.key for row in await scene.rows(keys.LOCK)] == []
    oldest = (await scene.runs())[-1]
    assert (oldest.fence, oldest.outcome.value) == (1, outcome.strip())


@story
async def test_other_releases_of_the_batch_land_as_well(scene: Scene) -> None:
    await scene.fill(3)
    names = [item.id async for item in scene.board.items()]
    claims = (await scene.take(*names)).claims
    await seen_before(scene, names[1])
    done = await release(scene.board, [finished(one) for one in claims])
    assert {one.how for one in done} == {ReleaseOutcome.DONE}
    assert [await scene.outcomes(one) for one in names] == [[(1, "ok")]] * 3


@pytest.mark.parametrize("first", ["old", "new"])
@story
async def test_two_runs_that_a_store_gave_one_fence(scene: Scene, first: str) -> None:
    """The store goes back to before the first claim; whichever ends first, the run that has the
    lock is in the history, and the item goes on.
    """
    await scene.add()
    before = {row.key: row for row in await scene.rows()}
    old = await scene.claimed()
    await go_back(scene, before)
    new = await scene.claimed()
    assert (old.fence, old.nonce == new.nonce) == (new.fence, False)
    ended = {}
    for one in (old, new) if first == "old" else (new, old):
        ended[one.nonce] = await scene.let_go(one, result="new" if one is new else "old")
    assert ended[new.nonce].how is ReleaseOutcome.DONE
    assert ended[old.nonce].how is ReleaseOutcome.LATE
    (run,) = await scene.runs()
    assert (run.nonce, run.outcome, run.result) == (new.nonce, Outcome.OK, '"new"')
    assert (await scene.item()).result == '"new"'
    await scene.token()


async def go_back(scene: Scene, before: dict[str, Row]) -> None:
    ops: list[Op] = [Delete(row.key, ANY) for row in await scene.rows() if row.key not in before]
    there = {row.key for row in await scene.rows()}
    ops += [
        Replace(key, row.data, ANY) if key in there else Insert(key, row.data)
        for key, row in before.items()
    ]
    await scene.other.table.commit(scene.other.partition("davis"), ops)


@story
async def test_a_token_in_the_way_of_a_release_is_written_over(scene: Scene) -> None:
    await scene.add()
    made = await scene.claimed()
    ready = made.start + timedelta(hours=1)
    stray = insert_next(replace(made.item, ready=ready, running=False, runs=7))
    await scene.other.table.commit(scene.other.partition("davis"), [stray])
    assert (await scene.let_go(made)).how is ReleaseOutcome.DONE
    assert (await scene.token()).runs == (await scene.item()).runs == 1


@pytest.mark.of_each_store
@story
async def test_a_waiting_item_without_a_token_gets_one_when_it_is_edited(scene: Scene) -> None:
    await scene.add()
    token = await scene.token()
    gone = Delete(keys.next_key(token.ready, "davis"), token.etag)
    await scene.other.table.commit(scene.other.partition("davis"), [gone])
    await edit(scene.board, "davis", lambda *_: Spec(every="2h"))
    assert (await scene.token()).spec == '{"every":"2h"}'


@pytest.mark.of_each_store
@story
async def test_a_running_item_without_a_lock_can_be_unlocked(scene: Scene) -> None:
    await scene.add()
    made = await scene.claimed()
    gone = Delete(keys.lock_key("davis"), made.lock.etag)
    await scene.other.table.commit(scene.other.partition("davis"), [gone])
    assert (await unlock(scene.board, "davis", scene.mark(), fence=made.fence)).changed
    await scene.token()


@story
async def test_an_item_is_added_though_a_token_of_its_name_is_there(scene: Scene) -> None:
    item = await scene.add()
    gone = Delete(keys.item_key("davis"), item.etag)
    await scene.other.table.commit(scene.other.partition("davis"), [gone])
    await scene.add()
    assert (await scene.token()).born == (await scene.item()).born


ITEM = Merge("item:a", {"n": 1}, "7")
RUN, NEXT, LOCK = "run:a:1", "next:1:a", "lock:a"
CASES: dict[str, tuple[list[Op], int, ConflictKind, list[Op] | None]] = {
    "a run is there": (
        [ITEM, Insert(RUN, {"n": 1})],
        1,
        ConflictKind.EXISTS,
        [ITEM, Replace(RUN, {"n": 1}, ANY)],
    ),
    "a token is there": (
        [Insert(NEXT, {"n": 1}), ITEM],
        0,
        ConflictKind.EXISTS,
        [Replace(NEXT, {"n": 1}, ANY), ITEM],
    ),
    "it was pruned since": (
        [ITEM, Replace(RUN, {"n": 1}, ANY)],
        1,
        ConflictKind.MISSING,
        [ITEM, Insert(RUN, {"n": 1})],
    ),
    "the token is gone": ([ITEM, Delete(NEXT, ANY)], 1, ConflictKind.MISSING, [ITEM]),
    "the lock is gone": ([Delete(LOCK, ANY), ITEM], 0, ConflictKind.MISSING, [ITEM]),
    "the item has changed": ([ITEM, Insert(RUN, {})], 0, ConflictKind.CHANGED, None),
    "the item is gone": ([ITEM, Insert(RUN, {})], 0, ConflictKind.MISSING, None),
    "another lock is there": ([ITEM, Insert(LOCK, {})], 1, ConflictKind.EXISTS, None),
    "the lock that was read is gone": ([Delete(LOCK, "3"), ITEM], 0, ConflictKind.MISSING, None),
    "the row that was read is gone": (
        [ITEM, Replace(RUN, {}, "3")],
        1,
        ConflictKind.MISSING,
        None,
    ),
    "an item is there": ([Insert("item:a", {})], 0, ConflictKind.EXISTS, None),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_overwritten_and_what_is_not(case: str) -> None:
    ops, index, kind, forced = CASES[case]
    assert overwriting(ops, Conflict(index, kind)) == forced
