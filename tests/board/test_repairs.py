"""What the doctor puts right, and what becomes of items that move meanwhile."""

import pytest

from blackboard.doctor import Examination, examine
from blackboard.protocol import keys
from blackboard.table import ANY, Delete, Merge
from tests.support.boards import Scene, story
from tests.support.faults import Fault
from tests.support.wrong_rows import (
    Plant,
    a_run,
    another_lock,
    another_token,
    codes,
    found,
    history_above_the_item,
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
    running_for_another_owner,
    running_with_a_higher_lock,
    running_with_a_lock_for_ages,
    running_with_a_lock_that_names_another_item,
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
        (token_that_cannot_be_read, ["D5"]),
        (token_that_names_no_item, ["D5"]),
        (token_that_names_another_item, ["D5"]),
        (running_with_a_lock_for_ages, ["D8"]),
        (running_with_a_lock_that_says_nothing, ["D2"]),
        (running_with_a_lock_that_names_another_item, ["D2"]),
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
    scene.table.script(*[Fault.REFUSED] * 5)
    mended = await repaired(scene.board)
    assert [(one.code, one.repaired) for one in mended.findings] == [("D1", False)]
    await plant(scene, Delete(planted.key, ANY))
