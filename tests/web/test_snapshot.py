"""The items in memory are those of the board, whichever way they were read."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from blackboard.errors import BadRow
from blackboard.model import Item
from blackboard.protocol import keys
from blackboard.protocol.actions import record_action
from blackboard.protocol.additions import New, add
from blackboard.protocol.board_pause import pause_board
from blackboard.protocol.claims import Claim
from blackboard.protocol.edits import edit, pause, remove, resume
from blackboard.protocol.status import read_status
from blackboard.spec import Spec
from blackboard.table import ANY, Busy, Merge, Unavailable, Unusable
from blackboard.tables.memory import Contents, MemoryTable
from blackboard.web import snapshot as module
from blackboard.web.filters import MOST_KEPT, Chooser, Filter
from blackboard.web.snapshot import LOOK_EVERY, Snapshot, entry_of
from tests.support.boards import Scene, make_board, story
from tests.support.clocks import ManualClock
from tests.support.faults import Fault
from tests.support.patience import patience
from tests.support.turns import settled
from tests.support.web_site import door


async def agree(scene: Scene, snapshot: Snapshot) -> None:
    """The snapshot has what the board has, and counts it."""
    read = await read_status(scene.other)
    there = {one.item.id: entry_of(one, scene.other.labels(one.item)) for one in read.statuses}
    assert {name: one.item for name, one in snapshot.entries.items()} == {
        name: one.item for name, one in there.items()
    }
    assert {name: one.states for name, one in snapshot.entries.items()} == {
        name: one.states for name, one in there.items()
    }
    counts = Counter(facet for one in there.values() for facet in one.facets())
    assert dict(snapshot.counts) == counts  # none of what is gone
    assert [one.item.id for one in snapshot.in_order()] == sorted(there)


class Changes:
    """What happens on a board, by chance."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.chance = random.Random(seed)
        self.claims: dict[str, Claim] = {}
        self.number = 0

    async def traced(self) -> None:
        """Something that locks and due tokens show."""
        scene, chance = self.scene, self.chance
        now = scene.clock.now()
        items = [one async for one in scene.other.items()]
        due = sorted(one.id for one in items if one.waits and one.ready <= now)
        what = chance.choice(["take", "take", "release", "release", "later", "add", "remove"])
        if what == "take" and due:
            one = chance.choice(due)
            self.claims[one] = await scene.claimed(one, board=scene.other)
        elif what == "release" and self.claims:
            one, made = self.claims.popitem()
            await scene.let_go(made, chance.choice(["ok", "failed"]), board=scene.other)
        elif what == "later":
            scene.later(minutes=chance.choice([1, 10, 61]))
        elif what == "add" and len(items) < 8:
            self.number += 1
            await scene.add(f"item {self.number}")
        elif what == "remove" and due:
            await remove(scene.other, chance.choice(due))

    async def untraced(self) -> None:
        """Something that nothing but the item shows."""
        scene, chance = self.scene, self.chance
        ids = sorted([one.id async for one in scene.other.items() if not one.running])
        if not ids:
            return
        one = chance.choice(ids)
        match chance.randrange(3):
            case 0:
                await pause(scene.other, one, scene.mark())
            case 1:
                await resume(scene.other, one, scene.mark())
            case 2:
                tagged = Spec(every="2h", tags=["eu"], description="Ä word")
                await edit(scene.other, one, lambda *_: tagged)


@story
async def test_a_small_board_is_read_whole(scene: Scene) -> None:
    snapshot = Snapshot(scene.board)
    changes = Changes(scene, 1)
    for _ in range(8):
        for _ in range(4):
            await changes.traced()
            await changes.untraced()
        await snapshot.look()
        await agree(scene, snapshot)
    before = snapshot.version
    await snapshot.look()
    assert snapshot.version == before


@pytest.fixture(name="_large")
def _is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first time no board is read whole."""
    monkeypatch.setattr(module, "QUICK", -1.0)
    monkeypatch.setattr(module, "SMALL", 0)
    monkeypatch.setattr(module, "READ_EVERY", 1e9)


@pytest.mark.usefixtures("_large")
@story
async def test_of_a_large_board_what_changed_is_read(scene: Scene) -> None:
    snapshot = Snapshot(scene.board)
    await scene.add("first")
    await snapshot.look()
    changes = Changes(scene, 2)
    for _ in range(14):
        for _ in range(3):
            await changes.traced()
        await snapshot.look()
        await agree(scene, snapshot)


@story
async def test_many_changes_are_read_whole_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUICK", -1.0)
    monkeypatch.setattr(module, "SMALL", 0)
    monkeypatch.setattr(module, "READ_EVERY", 1e9)
    monkeypatch.setattr(module, "MOST_CHANGES", 3)
    snapshot = Snapshot(scene.board)
    await scene.fill(6)
    await snapshot.look()
    await snapshot.look()
    await agree(scene, snapshot)
    read = snapshot._full_at
    scene.later(seconds=5)
    await snapshot.look()
    assert snapshot._full_at == read
    monkeypatch.setattr(module, "MOST_TRACES", 3)
    await snapshot.look()
    assert snapshot._full_at == read


@pytest.mark.cases_of_one_store("looks are the same above any store")
@pytest.mark.parametrize("verb", ["pause", "rename"])
@pytest.mark.usefixtures("_large")
@story
async def test_many_changes_at_each_look_do_not_read_the_board_back_to_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Also where actions do not name all of the items."""
    monkeypatch.setattr(module, "MOST_CHANGES", 3)
    ids = await scene.fill(6, cron="0 3 * * *")
    snapshot = Snapshot(scene.board)
    read_all, began_at = snapshot._read_all, []

    async def slowly(began: float) -> None:
        began_at.append(began)
        scene.later(seconds=5)
        await read_all(began)

    monkeypatch.setattr(snapshot, "_read_all", slowly)
    await snapshot.look()
    for number in range(24):
        scene.later(seconds=10)
        change = resume if number % 2 else pause
        for one in ids:
            await change(scene.other, one, scene.mark())
        await record_action(scene.other, by="ann", verb=verb, ids=ids, via="cli")
        await snapshot.look()
    assert len(began_at) == 3
    assert all(after - before >= 5 * 20 for before, after in pairwise(began_at))
    scene.later(seconds=100)
    for _ in range(2):
        await snapshot.look()
    await agree(scene, snapshot)


@pytest.mark.usefixtures("_large")
@story
async def test_what_a_full_reading_has_read_is_not_read_again_by_the_next_look(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.fill(6)
    await scene.claimed("item-0001", board=scene.other)
    snapshot = Snapshot(scene.board)
    read_all, item, read = snapshot._read_all, scene.board.item, list[str]()

    async def taken_meanwhile(began: float) -> None:
        await read_all(began)
        await scene.claimed("item-0002", board=scene.other)

    async def noted(item_id: str) -> Item | None:
        read.append(item_id)
        return await item(item_id)

    monkeypatch.setattr(snapshot, "_read_all", taken_meanwhile)
    monkeypatch.setattr(scene.board, "item", noted)
    await snapshot.look()
    for expected in (["item-0002"], []):
        read.clear()
        await snapshot.look()
        assert read == expected
        await agree(scene, snapshot)


@pytest.mark.usefixtures("_large")
@story
async def test_what_could_not_be_read_is_read_by_the_next_look(scene: Scene) -> None:
    snapshot = Snapshot(scene.board)
    await scene.add("first")
    await snapshot.look()
    await snapshot.look()
    made = await scene.claimed("first", board=scene.other)

    real = scene.board.item

    async def away(item_id: str) -> Item | None:
        raise Unavailable("the store is away")

    scene.board.item = away  # type: ignore[method-assign]
    await snapshot.look()
    assert snapshot.trouble == "the store is away"
    scene.board.item = real  # type: ignore[method-assign]
    await snapshot.look()
    assert snapshot.trouble == ""
    await agree(scene, snapshot)
    await scene.let_go(made, board=scene.other)


@pytest.mark.usefixtures("_large")
@story
async def test_a_row_that_cannot_be_read_hides_no_other(scene: Scene) -> None:
    snapshot = Snapshot(scene.board)
    ids = await scene.fill(3)
    for _ in range(2):
        await snapshot.look()
    for one in ids:
        await scene.claimed(one, board=scene.other)
    spoiled, unlocked, whole = ids
    partition = scene.other.partition(spoiled)

    async def fences(value: str | int) -> None:
        for key in (keys.item_key(spoiled), keys.lock_key(unlocked)):
            await scene.other.table.commit(partition, [Merge(key, {"fence": value}, ANY)])

    await fences("x")
    await snapshot.look()
    assert snapshot.trouble == ""
    assert list(snapshot.entries) == [unlocked, whole]
    assert snapshot.entries[whole].status.item.running
    await snapshot.reread([spoiled, unlocked])
    assert snapshot.trouble == ""
    await agree(scene, snapshot)
    await fences(1)


@pytest.mark.usefixtures("_large")
@story
async def test_where_a_request_fails_the_look_makes_no_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 2)
    snapshot = Snapshot(scene.board)
    ids = await scene.fill(6)
    await snapshot.look()
    asked: list[str] = []

    async def away(item_id: str) -> Item | None:
        asked.append(item_id)
        if len(asked) == 1:
            raise Unavailable("the store is away")
        await asyncio.sleep(0)
        return None

    monkeypatch.setattr(scene.board, "item", away)
    await snapshot.reread(ids)
    for _ in range(20):
        await asyncio.sleep(0)
    assert snapshot.trouble == "the store is away"
    assert len(asked) <= 2


@story
async def test_what_a_viewer_changed_is_seen_while_all_items_are_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in ("davis", "keene", "woodland"):
        await scene.add(one)
    await remove(scene.other, "woodland")
    snapshot = Snapshot(scene.board)
    await snapshot.look()
    items, has_read, goes_on = scene.board.items, asyncio.Event(), asyncio.Event()

    async def slowly(**about: Any) -> AsyncIterator[Item]:
        async for item in items(**about):
            yield item
        has_read.set()
        await goes_on.wait()

    monkeypatch.setattr(scene.board, "items", slowly)
    async with asyncio.timeout(patience(20)):
        looking = asyncio.create_task(snapshot.look())
        await has_read.wait()
        await pause(scene.other, "davis", scene.mark())
        await remove(scene.other, "keene")
        await scene.add("woodland")
        await snapshot.reread(["davis", "keene", "woodland"])
        await agree(scene, snapshot)
        goes_on.set()
        await looking
    await agree(scene, snapshot)  # what was read before is not put over it
    assert snapshot.removed.keys() == {"keene"}
    await snapshot.look()
    await agree(scene, snapshot)


@pytest.mark.usefixtures("_large")
@story
async def test_time_makes_items_overdue_and_locks_stale(scene: Scene) -> None:
    await scene.add("late")
    await scene.add("taken")
    snapshot = Snapshot(scene.board)
    await snapshot.look()
    await scene.claimed("taken", board=scene.other)
    await snapshot.look()
    assert snapshot.counts["state", "overdue"] == snapshot.counts["state", "stale"] == 0
    version, ids = snapshot.version, snapshot.ids
    scene.later(minutes=70)
    await snapshot.look()
    assert snapshot.ids is ids, "they are not sorted again"
    assert snapshot.entries["late"].status.overdue
    assert snapshot.entries["taken"].status.stale
    assert snapshot.counts["state", "overdue"] == snapshot.counts["state", "stale"] == 1
    assert snapshot.version > version
    await agree(scene, snapshot)


@story
async def test_a_board_that_was_made_anew_with_other_shards_is_trouble(scene: Scene) -> None:
    await scene.add()
    snapshot = Snapshot(scene.board)
    await snapshot.look()
    anew = [Merge(keys.BOARD_KEY, {"shards": 4}, ANY)]
    await scene.table.commit(keys.meta_partition(scene.board.name), anew)
    await snapshot.look()
    assert "was made anew with shards: 4" in snapshot.trouble


@story
async def test_trouble_of_the_store_is_shown_and_goes(scene: Scene) -> None:
    await scene.add()
    snapshot = Snapshot(scene.board)
    await snapshot.look()
    at, version = snapshot.at, snapshot.version
    scene.later(seconds=30)
    scene.table.script_reads(Fault.AWAY)
    await snapshot.look()
    assert snapshot.trouble
    assert (snapshot.at, list(snapshot.entries)) == (at, ["davis"])
    assert snapshot.version > version
    await snapshot.look()
    assert snapshot.trouble == ""
    assert snapshot.at != at


@story
async def test_a_damaged_row_is_trouble_too(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = Snapshot(scene.board)

    async def damaged(_: object) -> None:
        raise BadRow("item:x", "it is damaged")

    monkeypatch.setattr(module, "paused_by", damaged)
    await snapshot.look()
    assert "item:x" in snapshot.trouble


@story
async def test_a_fault_of_a_look_is_trouble_until_a_look_succeeds(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    snapshot = Snapshot(scene.board)

    async def faulty(_: object) -> None:
        raise ValueError("a fault")

    with monkeypatch.context() as patched:
        patched.setattr(module, "paused_by", faulty)
        for _ in range(2):
            await snapshot.look()
            assert "ValueError('a fault')" in snapshot.trouble
    assert [one.exc_info is not None for one in caplog.records] == [True]
    await snapshot.look()
    assert snapshot.trouble == ""


@pytest.mark.usefixtures("_large")
@story
async def test_an_action_is_seen_at_once(scene: Scene) -> None:
    await scene.add("davis", every="1h")
    snapshot = Snapshot(scene.board)
    await snapshot.look()
    version = snapshot.version
    await pause(scene.other, "davis", scene.mark("why"))
    await snapshot.reread(["davis"])
    assert snapshot.entries["davis"].item.is_paused
    assert snapshot.version > version
    await remove(scene.other, "davis")
    await snapshot.reread(["davis", "nothing"])
    assert not snapshot.entries
    assert +snapshot.counts == Counter()
    await pause_board(scene.other, scene.mark("all"))
    await snapshot.look()
    assert snapshot.paused is not None


@story
async def test_a_small_board_is_read_whole_however_long_that_takes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUICK", -1.0)
    await scene.add("davis", cron="0 3 * * *")
    snapshot = Snapshot(scene.board)
    await snapshot.look()
    await pause(scene.other, "davis", scene.mark("it leaves no trace"))
    await snapshot.look()
    await agree(scene, snapshot)


@pytest.mark.usefixtures("_large")
@story
async def test_what_people_do_elsewhere_is_seen_by_the_next_look(scene: Scene) -> None:
    """Of a large board, and of items that are not due."""
    people = door(scene.other)
    for one in ("davis", "keene", "salem"):
        await people.add(one, "feed", cron="0 3 * * *")
    snapshot = Snapshot(scene.board)
    await snapshot.look()
    changes: list[Callable[[], Awaitable[object]]] = [
        lambda: people.pause("davis", by="ann"),
        lambda: people.edit("keene", cron="0 4 * * *", by="ann"),
        lambda: people.remove("salem", by="ann"),
        lambda: people.resume("davis", by="ann"),
        lambda: people.rename("davis", "dayton", by="ann"),
    ]
    for change in changes:
        scene.later(seconds=1)
        await change()
        read = snapshot._full_at
        await snapshot.look()
        assert snapshot.trouble == ""
        await agree(scene, snapshot)
    assert read != snapshot._full_at  # a new id is in no action
    scene.later(seconds=1)
    for _ in range(3):
        read = snapshot._full_at
        await snapshot.look()
    assert read == snapshot._full_at


@pytest.mark.usefixtures("_large")
@story
async def test_many_items_that_are_changed_elsewhere_are_all_read(scene: Scene) -> None:
    ids = await scene.fill(30, cron="0 3 * * *")
    snapshot = Snapshot(scene.board)
    await snapshot.look()
    for one in ids:
        await pause(scene.other, one, scene.mark())
    await record_action(scene.other, by="ann", verb="pause", ids=ids, via="cli")
    scene.later(seconds=1)
    await snapshot.look()
    await agree(scene, snapshot)


@pytest.mark.usefixtures("_large")
@story
async def test_a_full_reading_does_not_put_off_the_next_look(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.add()
    snapshot = Snapshot(scene.board)
    read_all = snapshot._read_all

    async def slowly(began: float) -> None:
        scene.later(seconds=30)
        await read_all(began)

    monkeypatch.setattr(snapshot, "_read_all", slowly)
    await snapshot.look()
    assert snapshot._full_took >= 30
    assert snapshot._look_took < 30
    assert not snapshot._is_small
    monkeypatch.setattr(module, "SMALL", 1)
    await snapshot.look()
    assert snapshot._look_took >= 30


# ---- viewers


async def turned(clock: ManualClock, seconds: float) -> None:
    await settled()
    clock.advance(seconds)
    await settled()


def test_one_reader_for_all_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def told() -> None:
        clock = ManualClock()
        board = await make_board(MemoryTable(clock, Contents()), clock)
        snapshot = Snapshot(board)
        looks = 0
        look = snapshot.look

        async def counted(**said: Any) -> None:
            nonlocal looks
            looks += 1
            await look(**said)

        monkeypatch.setattr(snapshot, "look", counted)
        requests = board.table.requests
        asked = requests.total
        for _ in range(5):
            await turned(clock, LOOK_EVERY)
        assert requests.total == asked  # none looks at it
        async with snapshot.viewed(), snapshot.viewed():
            await turned(clock, 0)
            assert looks == 1
            async with snapshot.viewed():
                for _ in range(3):
                    await turned(clock, LOOK_EVERY)
                assert looks == 4
            await turned(clock, LOOK_EVERY)
            assert looks == 5
            await snapshot.fresh()
            assert looks == 5
        await turned(clock, LOOK_EVERY)
        looks, asked = 0, requests.total
        for _ in range(5):
            await turned(clock, LOOK_EVERY)
        assert (looks, requests.total) == (0, asked)
        await snapshot.fresh()
        await snapshot.fresh()
        assert looks == 1
        async with snapshot.viewed():
            await turned(clock, 0)
            assert looks == 2
            await snapshot.close()

    asyncio.run(told())


@pytest.mark.parametrize(
    ("problem", "pause"),
    [
        (Unavailable("it does not answer"), 10),
        (Busy(1.0), 50),
        (Unusable("its disk is full"), 50),
        (BadRow("item:x", "it is damaged"), 50),
        (ValueError("a fault"), 50),
    ],
    ids=["away", "busy", "unusable", "damaged", "fault"],
)
def test_after_no_answer_the_store_is_looked_at_again_soon_and_a_busy_one_is_spared(
    monkeypatch: pytest.MonkeyPatch, problem: Exception, pause: float
) -> None:
    async def told() -> None:
        clock = ManualClock()
        snapshot = Snapshot(await make_board(MemoryTable(clock, Contents()), clock))

        async def times_out(_: object) -> None:
            clock.advance(10)
            raise problem

        await snapshot.look()
        async with snapshot.viewed():
            with monkeypatch.context() as away:
                away.setattr(module, "paused_by", times_out)
                await turned(clock, 0)
            await turned(clock, pause - 1)
            assert snapshot.trouble
            await turned(clock, 1)
            assert snapshot.trouble == ""
            await snapshot.close()

    asyncio.run(told())


def test_pages_that_are_asked_for_together_wait_for_one_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def told() -> None:
        clock = ManualClock()
        snapshot = Snapshot(await make_board(MemoryTable(clock, Contents()), clock))
        looks = 0

        async def times_out(_: object) -> None:
            nonlocal looks
            looks += 1
            await clock.sleep(10)
            raise Unavailable("it does not answer")

        monkeypatch.setattr(module, "paused_by", times_out)

        async def ask(times: int) -> bool:
            """Whether pages that are asked for at the same time are there after ten seconds."""
            asked = asyncio.gather(*(snapshot.fresh() for _ in range(times)))
            await turned(clock, 10)
            return asked.done()

        assert (await ask(5), looks, snapshot.trouble) == (True, 1, "it does not answer")
        assert (await ask(5), looks) == (True, 1)  # the store rests for as long as that took
        assert (await ask(5), looks) == (True, 2)

    asyncio.run(told())


def test_who_waited_for_another_look_needs_no_more_also_where_no_time_has_passed() -> None:
    async def told() -> None:
        clock = ManualClock()
        snapshot = Snapshot(await make_board(MemoryTable(clock, Contents()), clock))
        await snapshot.look()
        seen = snapshot.looks
        await asyncio.gather(*(snapshot.look(since=seen) for _ in range(5)))
        assert snapshot.looks == seen + 1
        await snapshot.look()
        assert snapshot.looks == seen + 2

    asyncio.run(told())


def test_a_change_is_waited_for() -> None:
    async def told() -> None:
        clock = ManualClock()
        snapshot = Snapshot(await make_board(MemoryTable(clock, Contents()), clock))
        await snapshot.look()
        seen = snapshot.version
        await snapshot.change(since=seen - 1, within=60)
        waiting = asyncio.create_task(snapshot.change(since=seen, within=60))
        await asyncio.sleep(0)
        await add(snapshot.board, New(id="x", type="feed", spec=Spec(every="1h")))
        await snapshot.look()
        async with asyncio.timeout(patience(20)):
            await waiting
        await snapshot.change(since=snapshot.version, within=0)

    asyncio.run(told())


@story
async def test_choices_of_one_version_do_not_pile_up(scene: Scene) -> None:
    await scene.add()
    snapshot = Snapshot(scene.board)
    await snapshot.look()
    chooser = Chooser(snapshot)
    for number in range(3 * MOST_KEPT):
        assert await chooser.all(Filter(search=f"x{number}")) == []
    assert len(chooser._chosen) <= MOST_KEPT
    assert len(await chooser.all(Filter(search="DAV feed"))) == 1
