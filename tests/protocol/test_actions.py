"""The record of what people do: written once, read the newest first, deleted when it is old."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from blackboard.model import Action, replace
from blackboard.protocol import keys
from blackboard.protocol.actions import (
    BEGUN,
    LONGEST_DETAIL,
    LONGEST_REASON,
    MOST_IDS,
    actions,
    changed_fields,
    forget_old_actions,
    record_action,
    recording_action,
)
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.edits import edit
from blackboard.protocol.rows import data_of
from blackboard.table import Data, Insert, Unavailable, Unknown
from tests.support.boards import Scene, story
from tests.support.faults import Fault
from tests.support.stores import rows_of
from tests.support.verbs import says

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

OF = keys.actions_partition("town")
ABOUT: Any = {"by": "ann", "verb": "pause", "reason": "", "via": "cli", "warn": pytest.fail}


async def recorded(board: BoardTable, *ids: str, verb: str = "pause", detail: str = "") -> None:
    await record_action(
        board, by="ann", verb=verb, ids=ids, reason="moving", detail=detail, via="cli"
    )


async def no_pause() -> None:
    """Nothing else is to be done meanwhile."""


async def verbs(scene: Scene, limit: int = 100) -> list[str]:
    return [one.verb for one in await actions(scene.other, limit=limit)]


@story
async def test_an_action_is_read_as_it_was_recorded(scene: Scene) -> None:
    await recorded(scene.board, "davis", "dayton", detail="every")
    (found,) = await actions(scene.other, limit=1)
    assert replace(found, etag="") == Action(
        at=scene.clock.now(),
        by="ann",
        verb="pause",
        ids=("davis", "dayton"),
        count=2,
        reason="moving",
        detail="every",
        via="cli",
    )


@story
async def test_the_newest_come_first_and_no_more_than_are_asked_for(scene: Scene) -> None:
    for verb in ("run", "pause", "resume"):
        await recorded(scene.board, "davis", verb=verb)
        scene.later(milliseconds=1)
    assert await verbs(scene) == ["resume", "pause", "run"]
    assert await verbs(scene, limit=2) == ["resume", "pause"]
    assert await verbs(scene, limit=0) == []


@story
async def test_actions_of_a_clock_that_was_ahead_come_last(scene: Scene) -> None:
    """Else none of those that are recorded since would be among the newest."""
    await recorded(scene.board, "davis", verb="run")
    scene.clock.jump(9e7)
    for verb in ("pause", "resume"):
        await recorded(scene.board, "davis", verb=verb)
        scene.later(milliseconds=1)
    scene.clock.jump(-9e7)
    for seconds, verb in ((60.0, "edit"), (60.001, "unlock")):
        scene.clock.jump(seconds)
        await recorded(scene.board, "davis", verb=verb)
        scene.clock.jump(-seconds)
    expected = ["edit", "run", "resume", "pause", "unlock"]
    for limit in range(6):
        assert await verbs(scene, limit) == expected[:limit]


@story
async def test_one_action_names_some_of_many_items_and_counts_all(scene: Scene) -> None:
    ids = [f"item-{number}" for number in range(1_000)]
    await recorded(scene.board, *ids)
    (found,) = await actions(scene.other, limit=1)
    assert (found.ids, found.count) == (tuple(ids[:MOST_IDS]), 1_000)


@pytest.mark.of_each_store
@story
async def test_what_is_too_long_for_a_row_is_cut(scene: Scene) -> None:
    long = "é" * scene.board.table.max_value
    await record_action(
        scene.board, by="ann", verb="edit", ids=[long] * 3, reason=long, detail=long, via="web"
    )
    (found,) = await actions(scene.other, limit=1)
    assert (found.ids, found.count) == ((), 3)
    assert (len(found.reason), len(found.detail)) == (LONGEST_REASON, LONGEST_DETAIL)
    assert found.detail.endswith("é...")


@pytest.mark.parametrize(
    "faults", [[Fault.LOST], [Fault.NEVER], [Fault.NEVER, Fault.LOST], [Fault.TWICE]]
)
@story
async def test_an_action_whose_batch_is_lost_or_doubled_is_recorded_once(
    scene: Scene, faults: list[Fault]
) -> None:
    scene.table.script(*faults)
    await recorded(scene.board, "davis")
    assert await verbs(scene) == ["pause"]


@pytest.mark.parametrize("faults", [[], [Fault.LOST], [Fault.NEVER], [Fault.TWICE]])
@pytest.mark.parametrize("changed", [["davis", "keene"], []])
@story
async def test_an_action_that_was_recorded_when_it_began_is_one_or_none_when_it_has_ended(
    scene: Scene, changed: list[str], faults: list[Fault]
) -> None:
    ids = ["davis", "dayton", "keene"]
    async with recording_action(scene.board, ids=ids, **ABOUT) as done:
        (found,) = await actions(scene.other, limit=9)
        assert (found.count, found.detail) == (3, BEGUN)
        scene.later(minutes=5)
        scene.table.script(*faults)
        done.ids.update(changed)
    left = [(one.ids, one.detail) for one in await actions(scene.other, limit=9)]
    assert left == ([(("davis", "keene"), "")] if changed else [])


@pytest.mark.of_each_store
@story
async def test_an_action_that_lasts_longer_than_actions_are_kept_is_recorded(scene: Scene) -> None:
    scene.trust_clock()
    async with recording_action(scene.board, ids=["davis", "keene"], **ABOUT) as done:
        scene.later(hours=2)
        await forget_old_actions(scene.board, age=timedelta(hours=1), pause=no_pause)
        assert await verbs(scene) == []
        done.ids.add("davis")
    assert await verbs(scene) == ["pause"]


@pytest.mark.parametrize("ids", [["davis"], ["davis", "keene"]])
@story
async def test_an_action_that_ends_in_the_middle_has_what_was_changed(
    scene: Scene, ids: list[str]
) -> None:
    async def ends(error: BaseException) -> None:
        async with recording_action(scene.board, ids=ids, **ABOUT) as done:
            done.ids.add("davis")
            raise error

    for error in (Unavailable("cable cut"), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            await ends(error)
    assert [one.ids for one in await actions(scene.other, limit=9)] == [("davis",)] * 2


@story
async def test_an_action_on_one_item_that_changes_nothing_is_not_recorded(scene: Scene) -> None:
    async with recording_action(scene.board, ids=["davis"], **ABOUT):
        pass
    assert await verbs(scene) == []


@story
async def test_a_record_that_lands_late_is_there_once(scene: Scene) -> None:
    scene.table.script(Fault.LATE)
    await recorded(scene.board, "davis")
    assert await scene.table.land() == [False]
    assert await verbs(scene) == ["pause"]


@pytest.mark.parametrize(
    ("faults", "raised"), [([Fault.AWAY], Unavailable), ([Fault.NEVER] * 3, Unknown)]
)
@story
async def test_a_store_that_does_not_take_it_is_reported(
    scene: Scene, faults: list[Fault], raised: type[Exception]
) -> None:
    scene.table.script(*faults)
    with pytest.raises(raised):
        await recorded(scene.board, "davis")
    assert await verbs(scene) == []


@story
async def test_rows_that_cannot_be_read_are_passed_over(scene: Scene) -> None:
    await recorded(scene.board, "davis", verb="run")
    now = scene.clock.now()
    good = data_of(Action(at=now, by="ann", verb="run", via="cli"))
    bad: list[Data] = [{**good, "version": 2}, {**good, "ids": "[1]"}, {"verb": "run"}]
    later = now + timedelta(seconds=1)
    ops = [Insert(keys.action_key(later, str(n)), data) for n, data in enumerate(bad)]
    await scene.table.table.commit(OF, ops)
    scene.later(seconds=2)
    await recorded(scene.board, "davis", verb="pause")
    assert await verbs(scene) == ["pause", "run"]
    assert await verbs(scene, limit=2) == ["pause", "run"]


@pytest.mark.of_each_store
@story
async def test_actions_are_deleted_when_they_are_old(scene: Scene) -> None:
    many = scene.board.table.max_rows + 5
    now = scene.clock.now()
    old = data_of(Action(at=now, by="ann", verb="run", via="cli"))
    newer = Insert(keys.action_key(now, "newer"), {**old, "version": 2})
    for start in range(0, many, 100):
        some = range(start, min(start + 100, many))
        ops = [Insert(keys.action_key(now, f"{number:032}"), old) for number in some]
        await scene.table.table.commit(OF, ops)
    await scene.table.table.commit(OF, [newer])
    scene.later(milliseconds=1)
    await recorded(scene.board, "davis", verb="pause")
    scene.later(days=1)
    age = timedelta(days=1)
    assert await forget_old_actions(scene.board, age=age, pause=no_pause) == 0, "not watched yet"
    scene.trust_clock()
    assert await forget_old_actions(scene.board, age=age, pause=no_pause) == many
    assert await verbs(scene) == ["pause"]
    assert newer.key in {row.key for row in await rows_of(scene.table.table, OF)}
    assert await forget_old_actions(scene.board, age=age, pause=no_pause) == 0


@story
async def test_old_actions_that_another_worker_deletes_are_left_to_it(scene: Scene) -> None:
    scene.trust_clock()
    await recorded(scene.board, "davis")
    scene.later(days=2)

    async def other() -> None:
        await forget_old_actions(scene.other, age=timedelta(days=1), pause=no_pause)

    scene.table.script(other)
    assert await forget_old_actions(scene.board, age=timedelta(days=1), pause=no_pause) == 0
    assert await verbs(scene) == []


@pytest.mark.of_each_store
@story
async def test_what_an_edit_changed_has_names_and_no_values_of_params(scene: Scene) -> None:
    before = await scene.add(every="1h", params={"token": "s3cret", "days": 7, "same": [1]})
    new = says(every="2h", owner="ops", params={"token": "other", "same": [1], "url": "x"})
    after = (await edit(scene.board, "davis", new, item_type="other", checkpoint='"p57"')).item
    names = ["every", "owner", "params.token", "params.days", "params.url", "type", "checkpoint"]
    assert changed_fields(before, after) == names
    assert changed_fields(after, after) == []
