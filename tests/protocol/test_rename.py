"""Renaming an item, and giving it another type."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import timedelta

import pytest

from blackboard.errors import AlreadyThere, BadInput, BeingRenamed, BlackboardError, Missing
from blackboard.model import LARGEST, State
from blackboard.protocol.additions import New, add, ensure
from blackboard.protocol.edits import acknowledge, edit, pause, remove, resume, run_now
from blackboard.protocol.keys import item_key, notice_key, notices_partition
from blackboard.protocol.rename import rename
from blackboard.protocol.rename_marks import (
    INTERRUPTED_AFTER,
    RenameMark,
    Renaming,
    renaming_of,
)
from blackboard.spec import Spec
from blackboard.table import (
    ANY,
    Busy,
    Etag,
    Insert,
    Merge,
    Op,
    Refused,
    Row,
    Table,
    TableError,
    Unavailable,
    Unknown,
)
from blackboard.tables.base import ForwardingTable
from tests.support.boards import Scene, story
from tests.support.faults import Fault
from tests.support.verbs import VERBS

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

KEPT = ("type", "spec", "slot", "planned", "runs", "failures", "checkpoint", "outcome", "result")
"""What an item has whatever its name is."""


def same(one: object) -> list[object]:
    return [getattr(one, name) for name in KEPT]


async def served(scene: Scene) -> None:
    """An item with a history, that waits."""
    await scene.add("davis")
    await scene.let_go(await scene.claimed("davis"))


async def killed_at(
    scene: Scene, request_: int, old_id: str = "davis", new_id: str = "woodland"
) -> None:
    """A rename whose process is killed before this request of its own."""

    async def killed() -> None:
        raise asyncio.CancelledError

    scene.table.script(*[Fault.NONE] * request_, killed)
    with pytest.raises(asyncio.CancelledError):
        await rename(scene.board, old_id, new_id, scene.mark())


@pytest.mark.of_each_store
@story
async def test_an_id_whose_fences_are_used_up_is_refused_as_for_an_addition(scene: Scene) -> None:
    await scene.add("woodland")
    await remove(scene.other, "woodland")
    used = Merge(item_key("woodland"), {"fence": LARGEST}, ANY)
    await scene.other.table.commit(scene.other.partition("woodland"), [used])
    await served(scene)
    before = await scene.item()
    with pytest.raises(BadInput, match="'woodland' has used up its fences"):
        await rename(scene.board, "davis", "woodland", scene.mark())
    assert await scene.item() == before


@story
async def test_a_renamed_item_goes_on_under_its_new_id(scene: Scene) -> None:
    await served(scene)
    before = await scene.item()
    done = await rename(scene.board, "davis", "woodland", scene.mark())
    after = await scene.item("woodland")
    assert done.item == after
    assert after.state is State.ACTIVE
    assert same(after) == same(before)
    assert after.fence >= before.fence
    assert (await scene.item()).state is State.REMOVED
    assert (await scene.token("woodland")).slot == before.slot
    assert await scene.outcomes("woodland") == []
    assert await scene.outcomes() == [(1, "ok")], "the history stays with the old id"


@story
async def test_what_a_person_paused_stays_paused(scene: Scene) -> None:
    await served(scene)
    await pause(scene.board, "davis", scene.mark())
    before = await scene.item()
    await rename(scene.board, "davis", "woodland", scene.mark())
    after = await scene.item("woodland")
    assert (after.state, after.paused) == (State.PAUSED, before.paused)
    assert await scene.tokens() == []


@story
async def test_what_is_done_stays_done(scene: Scene) -> None:
    await scene.add("davis", at="2026-11-21T09:00Z")
    await scene.let_go(await scene.claimed("davis"))
    assert (await scene.item()).state is State.DONE
    await rename(scene.board, "davis", "woodland", scene.mark())
    after = await scene.item("woodland")
    assert (after.state, after.paused) == (State.DONE, "")


@story
async def test_runs_that_were_asked_for_are_taken_along(scene: Scene) -> None:
    """At once, whatever the jitter of the new id."""
    await served(scene)
    await edit(scene.board, "davis", lambda *_: Spec(cron="0 3 * * *", jitter="1h"))
    for number in range(3):
        await run_now(scene.board, "davis", once={"n": number})
    before = await scene.item()
    await rename(scene.board, "davis", "woodland", scene.mark())
    after = await scene.item("woodland")
    assert (after.once, after.requests) == (before.once, before.requests)
    assert after.requests
    assert after.ready - after.slot < timedelta(minutes=1)


@pytest.mark.cases_of_one_store("which names are kept is judged above the store")
@pytest.mark.parametrize("name", ["order 17", "rename-photos-17", "renamed-photos-17"])
@story
async def test_a_trigger_of_before_makes_no_second_run(scene: Scene, *, name: str) -> None:
    await scene.add("davis", every="365d")
    await run_now(scene.board, "davis", trigger=name, once={"order": 17})
    await rename(scene.board, "davis", "woodland", scene.mark())
    await rename(scene.board, "woodland", "yolo", scene.mark())
    assert not (await run_now(scene.board, "yolo", trigger=name, once={"order": 17})).changed
    assert not (await scene.item("yolo")).requests
    with pytest.raises(AlreadyThere):  # it is the copy of woodland
        await rename(scene.board, "davis", "yolo", scene.mark())


@pytest.mark.of_each_store
@story
async def test_a_failure_that_was_acknowledged_stays_so(scene: Scene) -> None:
    """Also where the new id had an item with a higher fence."""
    await served(scene)
    await remove(scene.board, "davis")
    await scene.add("elko")
    await scene.let_go(await scene.claimed("elko"), "failed")
    await acknowledge(scene.board, "elko", scene.mark("known"), fence=1)
    before = (await scene.item("elko")).acknowledged
    await rename(scene.board, "elko", "davis", scene.mark())
    after = await scene.item("davis")
    assert (after.fence, after.is_acknowledged) == (2, True)
    assert after.acknowledged == before.replace('"fence":1', '"fence":2')


@story
async def test_what_is_claimed_before_it_is_paused_goes_on_under_its_id(scene: Scene) -> None:
    await scene.add("davis", every="1h")
    scene.table.script(lambda: scene.claimed("davis", board=scene.other))
    with pytest.raises(BlackboardError, match="davis runs"):
        await rename(scene.board, "davis", "woodland", scene.mark())
    item = await scene.item()
    assert (item.state, item.running, item.paused) == (State.ACTIVE, True, "")


@pytest.mark.of_each_store
@story
async def test_what_runs_is_not_renamed(scene: Scene) -> None:
    await scene.add("davis")
    await scene.claimed("davis")
    before = await scene.item()
    with pytest.raises(BlackboardError, match="davis runs"):
        await rename(scene.board, "davis", "woodland", scene.mark())
    with pytest.raises(BlackboardError, match="davis runs"):
        await edit(scene.board, "davis", lambda spec, _: spec, item_type="report")
    assert await scene.item() == before


@story
async def test_an_id_that_is_taken_or_missing_is_refused(scene: Scene) -> None:
    await scene.add("davis")
    await scene.add("woodland")
    with pytest.raises(BadInput, match="is on this board already"):
        await rename(scene.board, "davis", "woodland", scene.mark())
    with pytest.raises(Missing):
        await rename(scene.board, "nowhere", "dixon", scene.mark())
    await remove(scene.board, "woodland")
    fence = (await scene.item("woodland")).fence
    await rename(scene.board, "davis", "woodland", scene.mark())
    assert (await scene.item("woodland")).born >= fence


@pytest.mark.of_one_store("who paused an item, and when, is read above the store")
@story
async def test_a_rename_whose_clock_was_ahead_counts_as_interrupted(scene: Scene) -> None:
    mark = RenameMark(by="ann", at=scene.clock.now())
    renaming = Renaming("davis", "woodland", mark)
    for seconds in (INTERRUPTED_AFTER.total_seconds(), 366 * 86_400.0):
        for sign in (1, -1):
            now = mark.at + sign * timedelta(seconds=seconds)
            assert renaming.is_interrupted(now=now) is (seconds > 60)


@pytest.mark.cases_of_one_store("where a rename was interrupted is seen above the store")
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER, "killed"])
@pytest.mark.parametrize("request_", range(4))
@story
async def test_a_rename_that_is_interrupted_is_finished_by_the_next(
    scene: Scene, request_: int, fault: Fault | str
) -> None:
    """Pause, make, remove, resume: each of the four requests is lost, or is the last one."""
    await served(scene)
    before = await scene.item()

    async def killed() -> None:
        raise asyncio.CancelledError

    scene.table.script(*[Fault.NONE] * request_, killed if isinstance(fault, str) else fault)
    try:
        await rename(scene.board, "davis", "woodland", scene.mark())
    except asyncio.CancelledError:
        await rename(scene.other, "davis", "woodland", scene.mark())
    assert scene.table.quiet
    after = await scene.item("woodland")
    assert after.state is State.ACTIVE
    assert same(after) == same(before)
    assert [token.id for token in await scene.tokens()] == ["woodland"]


@story
async def test_a_rename_is_done_although_each_batch_arrives_twice(scene: Scene) -> None:
    """And makes the copy once."""
    await served(scene)
    before, sent = await scene.item(), len(scene.table.batches)
    scene.table.script(*[Fault.TWICE] * 4)
    assert (await rename(scene.board, "davis", "woodland", scene.mark())).changed
    after = await scene.item("woodland")
    assert (after.state, same(after)) == (State.ACTIVE, same(before))
    assert scene.table.quiet
    assert len(scene.table.batches) - sent == 4


@story
async def test_an_edit_meanwhile_is_not_lost(scene: Scene) -> None:
    await served(scene)

    async def edited() -> None:
        await edit(scene.other, "davis", lambda *_: Spec(every="7h"))

    scene.table.script(Fault.NONE, Fault.NONE, edited)
    await rename(scene.board, "davis", "woodland", scene.mark())
    assert (await scene.item("woodland")).schedule == "every 7h"
    assert [token.id for token in await scene.tokens()] == ["woodland"]


@pytest.mark.cases_of_one_store("what each sends is built above the store")
@pytest.mark.of_each_store
@pytest.mark.parametrize("to", ["woodland", "dixon"])
@pytest.mark.parametrize("request_", range(4))
@story
async def test_two_renames_at_a_time_leave_one_item(scene: Scene, request_: int, to: str) -> None:
    """The other one takes place before each of the four requests."""
    await served(scene)
    before = await scene.item()

    async def other() -> None:
        with suppress(Missing):  # it comes too late
            await rename(scene.other, "davis", to, scene.mark())

    scene.table.script(*[Fault.NONE] * request_, other)
    lost = to != "woodland" and request_ < 3
    if lost:
        with pytest.raises(Missing, match="davis"):
            await rename(scene.board, "davis", "woodland", scene.mark())
    else:
        with suppress(Missing):  # the other one was faster
            await rename(scene.board, "davis", "woodland", scene.mark())
    (left,) = [item async for item in scene.board.items()]
    assert (left.id, left.state) == (to if lost else "woodland", State.ACTIVE)
    assert same(left) == same(before)
    assert [token.id for token in await scene.tokens()] == [left.id]


@pytest.mark.of_each_store
@story
async def test_a_copy_whose_rename_died_goes_where_another_one_was_done(scene: Scene) -> None:
    await served(scene)
    await killed_at(scene, 2)
    await rename(scene.other, "davis", "dixon", scene.mark())
    with pytest.raises(Missing, match="davis"):
        await rename(scene.board, "davis", "woodland", scene.mark())
    assert (await scene.item("woodland")).state is State.REMOVED
    assert (await scene.item("dixon")).state is State.ACTIVE


@story
async def test_a_rename_to_another_id_goes_on_where_one_died(scene: Scene) -> None:
    await served(scene)
    await killed_at(scene, 1)
    done = await rename(scene.board, "davis", "dixon", scene.mark())
    assert (done.item.id, done.item.state, done.item.paused) == ("dixon", State.ACTIVE, "")


@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.parametrize("verb", VERBS)
@story
async def test_a_copy_is_not_changed_before_its_rename_is_done(
    scene: Scene, verb: str, *, is_paused: bool
) -> None:
    """The next rename would write over it."""
    await scene.add("elko")
    if is_paused:
        await pause(scene.board, "elko", scene.mark("feeds are broken"))
    before = await scene.item("elko")
    await killed_at(scene, 2 - is_paused, "elko", "davis")
    copy = await scene.item()
    with pytest.raises(
        BeingRenamed, match="davis is being renamed: `blackboard rename elko davis`"
    ):
        await VERBS[verb](scene)
    with pytest.raises(BeingRenamed):
        await rename(scene.board, "davis", "dixon", scene.mark())
    assert await scene.item() == copy
    await rename(scene.board, "elko", "davis", scene.mark())
    after = await scene.item()
    assert (same(after), after.state) == (same(before), before.state)
    assert (after.paused, (await scene.item("elko")).state) == (before.paused, State.REMOVED)


@pytest.mark.of_each_store
@pytest.mark.parametrize("request_", [2, 3])
@story
async def test_a_copy_is_removed_only_where_the_old_item_was_resumed(
    scene: Scene, request_: int
) -> None:
    await served(scene)
    before = await scene.item()
    await killed_at(scene, request_)
    with pytest.raises(BeingRenamed, match="and then `blackboard rm woodland` undo it"):
        await remove(scene.board, "woodland")
    if request_ == 2:
        await resume(scene.board, "davis", scene.mark())
        assert (await remove(scene.board, "woodland")).changed
    else:
        with pytest.raises(Missing):
            await resume(scene.board, "davis", scene.mark())
        await rename(scene.board, "davis", "woodland", scene.mark())
    (left,) = [item async for item in scene.board.items()]
    assert (left.id, left.state) == ("davis" if request_ == 2 else "woodland", State.ACTIVE)
    assert same(left) == same(before)
    assert len(await scene.tokens()) == 1


@pytest.mark.parametrize("request_", range(4))
@story
async def test_a_copy_that_is_undone_while_its_rename_is_at_work_leaves_one_item(
    scene: Scene, request_: int
) -> None:
    await served(scene)
    before = await scene.item()

    async def undone() -> None:
        for undo in (resume(scene.other, "davis", scene.mark()), remove(scene.other, "woodland")):
            with suppress(Missing, BeingRenamed):
                await undo

    scene.table.script(*[Fault.NONE] * request_, undone)
    await rename(scene.board, "davis", "woodland", scene.mark())
    (left,) = [item async for item in scene.board.items()]
    assert (left.id, left.state) == ("woodland", State.ACTIVE)
    assert same(left) == same(before)


@pytest.mark.of_each_store
@story
async def test_what_reads_like_the_pause_of_a_rename_and_is_a_persons_ends_as_others(
    scene: Scene,
) -> None:
    await scene.add("davis")
    await pause(scene.board, "davis", scene.mark("renamed from elko"))
    await resume(scene.board, "davis", scene.mark())
    assert (await scene.item()).state is State.ACTIVE


@pytest.mark.of_each_store
@story
async def test_a_pause_with_the_reason_of_a_rename_outlasts_a_rename(scene: Scene) -> None:
    await scene.add("davis")
    await pause(scene.board, "davis", scene.mark("renamed to woodland"))
    assert renaming_of(await scene.item()) is None
    await rename(scene.board, "davis", "woodland", scene.mark())
    after = await scene.item("woodland")
    assert (after.state, "renamed to woodland" in after.paused) == (State.PAUSED, True)


@pytest.mark.parametrize("request_", [1, 2])
@story
async def test_a_pause_meanwhile_is_not_lost(scene: Scene, request_: int) -> None:
    """The rename has paused the item itself, and resumes it."""
    await served(scene)

    async def paused() -> None:
        done = await pause(scene.other, "davis", scene.mark("feeds are broken"))
        assert done.changed

    scene.table.script(*[Fault.NONE] * request_, paused)
    await rename(scene.board, "davis", "woodland", scene.mark())
    after = await scene.item("woodland")
    assert (after.state, "feeds are broken" in after.paused) == (State.PAUSED, True)


@story
async def test_an_item_that_is_resumed_after_its_rename_died_runs_under_one_id(
    scene: Scene,
) -> None:
    await served(scene)
    for number in range(2):
        await run_now(scene.board, "davis", once={"n": number})
    await killed_at(scene, 2)
    await resume(scene.board, "davis", scene.mark())
    await scene.let_go(await scene.claimed("davis"))
    await rename(scene.board, "davis", "woodland", scene.mark())
    after = await scene.item("woodland")
    assert (after.once, after.requests) == ('{"n":1}', ())
    assert [token.id for token in await scene.tokens()] == ["woodland"]


@pytest.mark.of_each_store
@story
async def test_a_new_item_of_the_old_id_does_not_replace_the_renamed_one(
    scene: Scene,
) -> None:
    """The rename died before its last step, and a file that declares the old id was applied."""
    await served(scene)
    before = await scene.item()
    await killed_at(scene, 3)
    await scene.add("davis", every="7h")
    with pytest.raises(BeingRenamed):
        await remove(scene.board, "woodland")
    await rename(scene.board, "davis", "woodland", scene.mark())
    after = await scene.item("woodland")
    assert (same(after), after.state) == (same(before), State.ACTIVE)
    assert (await scene.item()).schedule == "every 7h"
    with pytest.raises(AlreadyThere):
        await rename(scene.board, "davis", "woodland", scene.mark())


@story
async def test_a_rename_that_died_is_finished_although_the_old_item_was_removed(
    scene: Scene,
) -> None:
    """As by `apply --prune`, where the file has the new id already."""
    await served(scene)
    before = await scene.item()
    await killed_at(scene, 2)
    await remove(scene.board, "davis")
    await rename(scene.board, "davis", "woodland", scene.mark())
    (left,) = [item async for item in scene.board.items()]
    assert (left.id, left.state, same(left)) == ("woodland", State.ACTIVE, same(before))


@pytest.mark.parametrize("request_", [1, 2])
@story
async def test_an_item_that_is_removed_while_its_rename_is_at_work_stays_removed(
    scene: Scene, request_: int
) -> None:
    await served(scene)

    async def removed() -> None:
        assert (await remove(scene.other, "davis")).changed

    scene.table.script(*[Fault.NONE] * request_, removed)
    with pytest.raises(Missing):
        await rename(scene.board, "davis", "woodland", scene.mark())
    assert [item async for item in scene.board.items()] == []


@pytest.mark.of_each_store
@pytest.mark.parametrize("request_", [2, 3])
@story
async def test_a_rename_says_that_its_new_item_was_removed_since(
    scene: Scene, request_: int
) -> None:
    """Another call was faster."""
    await served(scene)

    async def removed() -> None:
        await rename(scene.other, "davis", "woodland", scene.mark())
        assert (await remove(scene.other, "woodland")).changed

    scene.table.script(*[Fault.NONE] * request_, removed)
    for _ in range(2):
        with pytest.raises(Missing, match="was renamed to 'woodland', which was removed"):
            await rename(scene.board, "davis", "woodland", scene.mark())
    assert [item async for item in scene.board.items()] == []


class NoticesAway(ForwardingTable):
    """The rows of notices cannot be read, or only not be written."""

    def __init__(self, table: Table, trouble: TableError, *, are_read: bool) -> None:
        super().__init__(table)
        self._trouble, self._are_read = trouble, are_read

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        if partition == notices_partition("town"):
            raise self._trouble
        return await self.table.commit(partition, ops)

    async def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        if partition == notices_partition("town") and not self._are_read:
            raise self._trouble
        async for row in self.table.scan(partition, first, last, limit):
            yield row


@pytest.mark.cases_of_one_store("what goes along is decided above the store")
@pytest.mark.of_each_store
@pytest.mark.parametrize("are_read", [False, True])
@pytest.mark.parametrize("trouble", [Busy(1.0), Unavailable(), Unknown(), Refused(0, "too large")])
@story
async def test_a_rename_is_done_although_what_was_sent_does_not_go_along(
    scene: Scene, trouble: TableError, *, are_read: bool
) -> None:
    await served(scene)
    notice = Insert(notice_key("davis", "failed"), {"item": "davis", "fence": 1})
    await scene.table.table.commit(notices_partition("town"), [notice])
    table = NoticesAway(scene.board.table, trouble, are_read=are_read)
    done = await rename(scene.board.using(table), "davis", "woodland", scene.mark())
    assert done.item == await scene.item("woodland")
    assert done.item.state is State.ACTIVE


@pytest.mark.of_each_store
@story
async def test_what_was_sent_takes_the_place_of_what_an_earlier_item_of_the_id_has_left(
    scene: Scene,
) -> None:
    partition = notices_partition("town")

    def notice(item_id: str, kind: str, fence: int) -> Insert:
        return Insert(notice_key(item_id, kind), {"item": item_id, "fence": fence})

    await scene.add("woodland")
    await scene.let_go(await scene.claimed("woodland"), "failed", error="no feed")
    left = [notice("woodland", "failed", 1), notice("woodland", "warned", 0)]
    await scene.table.table.commit(partition, [*left, notice("davis", "failed", 1)])
    await remove(scene.board, "woodland")
    await served(scene)
    for _ in range(2):
        done = await rename(scene.board, "davis", "woodland", scene.mark())
    rows = [row async for row in scene.table.table.scan(partition)]
    assert [(row.key, row.data["item"], row.data["fence"]) for row in rows] == [
        (notice_key("woodland", "failed"), "woodland", done.item.fence)
    ]


@pytest.mark.parametrize("name", ["town.clicks", "town.leaders"])
@pytest.mark.of_one_store("a name is refused above the store")
@story
async def test_what_is_held_keeps_its_name(scene: Scene, name: str) -> None:
    """Its workers or candidates would make it anew, and serve both."""
    board = scene.board.group(name.partition(".")[2])
    await ensure(board, ["a"], "clicks")
    with pytest.raises(BadInput, match=f"id: {name} has the (partitions|elections)"):
        await rename(board, "a", "b", scene.mark())
    assert [(item.id, item.state) async for item in board.items()] == [("a", State.ACTIVE)]


@story
async def test_an_item_gets_another_type(scene: Scene) -> None:
    await add(scene.board, New(id="davis", type="feed", spec=Spec(every="1h")))
    await edit(scene.board, "davis", lambda spec, _: spec, item_type="report")
    assert (await scene.item()).type == (await scene.token()).type == "report"
    assert not (await edit(scene.board, "davis", lambda spec, _: spec, item_type="report")).changed
