"""What the doctor puts right, and what becomes of items that move meanwhile."""

import pytest

from blackboard.doctor import Examination, examine
from blackboard.model import LARGEST
from blackboard.protocol import keys
from blackboard.protocol.additions import New, add
from blackboard.protocol.edits import cancel
from blackboard.spec import Spec
from blackboard.table import ANY, Delete, Insert, Merge, Value, read
from tests.support.boards import Scene, make_board, story
from tests.support.faults import Fault
from tests.support.wrong_rows import (
    Plant,
    a_run,
    another_lock,
    another_token,
    codes,
    found,
    history_above_the_item,
    key_of_another_id,
    lock_beside_the_token,
    lock_instead_of_the_token,
    lock_of_an_earlier_life,
    lock_of_an_older_fence,
    lock_without_item,
    named_key,
    no_token,
    outcome_unlike_the_history,
    paused_with_a_lock,
    paused_with_a_token,
    plant,
    removed_with_a_lock,
    removed_with_a_token,
    repaired,
    row_without_id,
    running_for_another_owner,
    running_with_a_higher_lock,
    running_with_a_lock_for_ages,
    running_with_a_lock_that_says_nothing,
    running_with_a_lower_lock,
    running_with_a_token,
    running_without_lock,
    token_at_another_time,
    token_of_an_earlier_life,
    token_that_cannot_be_read,
    token_that_names_another_item,
    token_that_names_no_item,
    token_with_another_checkpoint,
    token_with_another_fence,
    token_with_another_spec,
    token_without_item,
    two_tokens,
)


@pytest.mark.cases_of_one_store("rows are judged above the store")
@pytest.mark.case("CR02")
@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (no_token, ["D1"]),
        (two_tokens, ["D1"]),
        (token_at_another_time, ["D1", "D1"]),
        (lock_beside_the_token, ["D1"]),
        (lock_instead_of_the_token, ["D1", "D1"]),
        (lock_of_an_older_fence, ["D1"]),
        (lock_of_an_earlier_life, ["D1", "D4"]),
        (running_without_lock, ["D2"]),
        (running_with_a_token, ["D2"]),
        (running_with_a_higher_lock, ["D2"]),
        (running_with_a_lower_lock, ["D2"]),
        (running_for_another_owner, ["D2"]),
        (paused_with_a_token, ["D3"]),
        (paused_with_a_lock, ["D3"]),
        (removed_with_a_token, ["D3"]),
        (removed_with_a_lock, ["D3"]),
        (token_without_item, ["D4"]),
        (lock_without_item, ["D4"]),
        (token_of_an_earlier_life, ["D4"]),
        (token_with_another_spec, ["D5"]),
        (token_with_another_fence, ["D5"]),
        (token_with_another_checkpoint, ["D5"]),
        (token_that_cannot_be_read, ["D7"]),
        (token_that_names_no_item, ["D9"]),
        (token_that_names_another_item, ["D9"]),
        (key_of_another_id, ["D9"]),
        (row_without_id, ["D9"]),
        (running_with_a_lock_for_ages, ["D8"]),
        (running_with_a_lock_that_says_nothing, ["D9"]),
        (history_above_the_item, ["D6", "D6"]),
        (outcome_unlike_the_history, ["D6"]),
    ],
)
@story
async def test_what_is_broken_is_told_and_put_right(
    scene: Scene, broken: Plant, told: list[str]
) -> None:
    await scene.add()
    await plant(scene, *await broken(scene))
    looked = await found(scene.board)
    assert (codes(looked), looked.clean) == (told, False)
    mended = await repaired(scene.board)
    assert codes(mended) == told
    assert all(one.repaired for one in mended.findings)
    assert mended.clean
    assert (await found(scene.board)).findings == []


# ---- how it is put right


@story
async def test_a_lock_that_may_be_alive_is_kept_and_its_holder_ends_well(scene: Scene) -> None:
    await scene.add()
    made = await scene.claimed()
    await plant(
        scene, await another_token(scene), Merge(keys.item_key("davis"), {"running": False}, ANY)
    )
    await repaired(scene.board)
    assert ((await scene.item()).running, (await scene.lock()).nonce) == (True, made.nonce)
    await scene.let_go(made)
    assert await scene.outcomes() == [(1, "ok")]


@story
async def test_whoever_lost_its_lock_to_a_repair_is_late(scene: Scene) -> None:
    """The fence rises, so that its result is known for what it is."""
    await scene.add(item_type="fenced", every="1h")
    made = await scene.claimed()
    await plant(scene, Delete(keys.lock_key("davis"), ANY))
    await repaired(scene.board)
    assert (await scene.token()).fence == made.fence + 1
    await scene.let_go(made, result="late")
    assert (await scene.item()).result == ""
    assert await scene.outcomes() == [(1, "superseded")]


@story
async def test_a_fence_rises_above_the_history_and_the_lock_that_went(scene: Scene) -> None:
    await scene.add()
    await plant(scene, await a_run(scene, above=9), await another_lock(scene, above=4, born=7))
    await repaired(scene.board)
    assert ((await scene.item()).fence, (await scene.token()).fence) == (9, 9)


# ---- items that move


@story
async def test_a_repair_of_an_item_that_has_moved_is_refused_and_judged_anew(scene: Scene) -> None:
    await scene.add()
    await plant(scene, await another_token(scene))

    async def claim_it() -> None:
        await scene.other.table.commit(
            scene.other.partition("davis"), [Merge(keys.item_key("davis"), {"failures": 3}, ANY)]
        )

    scene.table.script(claim_it)
    mended = await repaired(scene.board)
    first, second = scene.table.batches[-2:]
    assert first[0] != second[0]
    assert codes(mended) == ["D1", "D5"]
    assert mended.clean
    assert (await scene.token()).failures == 3


@story
async def test_what_others_put_right_first_is_not_told_as_repaired(scene: Scene) -> None:
    await scene.add()
    planted = await another_token(scene)
    await plant(scene, planted)

    async def delete_it() -> None:
        await plant(scene, Delete(planted.key, ANY))

    scene.table.script(delete_it)
    assert (await repaired(scene.board)).findings == []


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER])
@story
async def test_a_repair_whose_reply_is_lost_is_looked_at_again(scene: Scene, fault: Fault) -> None:
    await scene.add()
    await plant(scene, Delete(await named_key(scene), ANY))
    scene.table.script(fault)
    mended = await repaired(scene.board)
    assert [(one.code, one.repaired) for one in mended.findings] == [("D1", True)]
    assert len(await scene.tokens()) == 1


@story
async def test_an_item_that_never_holds_still_is_left_alone(scene: Scene) -> None:
    await scene.add()
    planted = await another_token(scene)
    await plant(scene, planted)

    async def move_it() -> None:
        await plant(scene, Merge(keys.item_key("davis"), {"error": "moving"}, ANY))

    scene.table.script_reads(*[Fault.NONE] * 4, move_it)
    for _ in range(20):
        scene.table.script_reads(Fault.NONE, move_it)
    scene.table.batches.clear()
    report = await examine(scene.board, Examination(repair=True))
    scene.table._reads.clear()
    assert report.findings == []
    assert scene.table.batches == []
    await plant(scene, Delete(planted.key, ANY))


@story
async def test_a_repair_that_the_store_refuses_leaves_the_finding(scene: Scene) -> None:
    await scene.add()
    planted = await another_token(scene)
    await plant(scene, planted)
    scene.table.script(Fault.REFUSED)
    (told,) = (await repaired(scene.board)).findings
    assert (told.code, told.repaired) == ("D1", False)
    assert "(the store does not take its repair: " in told.problem
    await plant(scene, Delete(planted.key, ANY))


# ---- beside rows that cannot be read

above_the_store = pytest.mark.of_one_store("rows are judged above the store")


@above_the_store
@pytest.mark.parametrize("damage", [{"log": 5}, {"item": "elko"}, {"fence": 9}, {"version": 99}])
@story
async def test_a_run_that_cannot_be_read_keeps_its_item_from_no_repair(
    scene: Scene, damage: dict[str, Value]
) -> None:
    await scene.add()
    for _ in range(2):
        await scene.let_go(await scene.claimed())
        scene.later(hours=1)
    key = keys.run_key("davis", 2)
    await plant(scene, Merge(key, damage, ANY), Delete(await named_key(scene), ANY))
    mended = await repaired(scene.board)
    assert ("D1", True) in [(one.code, one.repaired) for one in mended.findings]
    assert mended.clean
    (told,) = (await found(scene.board)).findings
    assert (told.grave, told.problem.startswith(f"the row {key} in town: ")) == (False, True)
    await plant(scene, Delete(key, ANY))


@above_the_store
@story
async def test_a_fence_rises_above_a_run_that_cannot_be_read(scene: Scene) -> None:
    await scene.add()
    run = await a_run(scene, above=7)
    await plant(scene, Insert(run.key, {**run.data, "lag": "long"}))
    assert codes(await repaired(scene.board)) == ["D6", "D7"]
    assert ((await scene.item()).fence, (await scene.token()).fence) == (7, 7)
    await plant(scene, Delete(run.key, ANY))


@above_the_store
@pytest.mark.parametrize("damage", [{"log": 5}, {}])
@story
async def test_a_run_under_a_key_that_no_run_can_have_raises_no_fence(
    scene: Scene, damage: dict[str, Value]
) -> None:
    await scene.add()
    await scene.let_go(await scene.claimed())
    run = await a_run(scene, above=LARGEST - 1)
    await plant(scene, Insert(run.key, {**run.data, **damage}))
    (told,) = (await repaired(scene.board)).findings
    assert (told.code, told.grave, told.repaired) == ("D9", False, False)
    assert told.problem.endswith("nothing goes by it (delete it)")
    assert (await scene.item()).fence == 1
    await plant(scene, Delete(run.key, ANY))


@above_the_store
@story
async def test_rows_that_cannot_be_read_and_have_no_item_are_deleted(scene: Scene) -> None:
    await scene.add()
    await scene.claimed()
    token, item = await another_token(scene), Delete(keys.item_key("davis"), ANY)
    await plant(scene, item, Insert(token.key, {**token.data, "fence": "x"}))
    await plant(scene, Merge(keys.lock_key("davis"), {"stood_still": "x"}, ANY))
    mended = (await repaired(scene.board)).findings
    assert [(one.code, one.repaired) for one in mended] == [("D7", True), ("D7", True)]
    assert (await found(scene.board)).findings == []


@above_the_store
@story
async def test_a_lock_that_cannot_be_read_beside_an_item_that_waits_is_deleted(
    scene: Scene,
) -> None:
    await scene.add()
    await plant(scene, Insert(keys.lock_key("davis"), {"item": "davis", "nonce": "x"}))
    (told,) = (await found(scene.board)).findings
    assert told.problem.endswith("(`blackboard doctor --repair` deletes it)")
    assert [one.repaired for one in (await repaired(scene.board)).findings] == [True]
    assert (await scene.claimed()).fence == 1


@above_the_store
@pytest.mark.parametrize("damage", [{"stood_still": "x"}, {"born": 10**12}, {"item": "elko"}])
@story
async def test_a_lock_that_cannot_be_read_is_freed_once_no_worker_can_hold_it(
    scene: Scene, damage: dict[str, Value]
) -> None:
    await scene.add()
    await scene.claimed()
    await plant(scene, Merge(keys.lock_key("davis"), damage, ANY))
    scene.later(minutes=59)
    (told,) = (await repaired(scene.board)).findings
    assert (told.grave, told.repaired) == (True, False)
    assert told.problem.startswith("the row lock:davis in town: ")
    assert "`blackboard cancel davis` ends the run" in told.problem
    scene.later(minutes=2)
    mended = (await repaired(scene.board)).findings
    assert told.code in [one.code for one in mended if one.repaired]
    assert ((await scene.token()).fence, (await found(scene.board)).clean) == (2, True)


@above_the_store
@story
async def test_a_cancel_ends_a_run_whose_lock_cannot_be_read(scene: Scene) -> None:
    await scene.add()
    made = await scene.claimed()
    await plant(scene, Merge(keys.lock_key("davis"), {"stood_still": "x"}, ANY))
    assert (await cancel(scene.other, "davis", scene.mark(), fence=made.fence)).changed
    assert (await found(scene.board)).findings == []


@above_the_store
@story
async def test_an_item_in_a_wrong_shard_is_listed_once_and_named(scene: Scene) -> None:
    board = await make_board(scene.table, scene.clock, shards=2, name="fleet")
    await add(board, New(id="davis", type="feed", spec=Spec(every="1h")))
    right = keys.shard_of("davis", 2)
    wrong, key = board.shard(1 - right), keys.item_key("davis")
    row = await read(scene.table, board.shard(right), key)
    assert row is not None
    await scene.add("davis")
    run = await a_run(scene, above=1)
    await scene.table.commit(wrong, [Insert(key, row.data), run])
    assert [one.id async for one in board.items()] == ["davis"]
    assert board.unreadable == [key]
    for what, gone in ((f"the row {key}", key), ("its history", run.key)):
        (told,) = (await repaired(board)).findings
        assert (told.code, told.repaired) == ("D4", False)
        assert told.problem.startswith(f"{what} lies in {wrong}, where nothing looks for it")
        assert told.problem.endswith("or delete it)")
        await scene.table.commit(wrong, [Delete(gone, ANY)])
    assert (await found(board)).findings == []
    assert [one.id async for one in board.items()] == ["davis"]
    assert board.unreadable == []
