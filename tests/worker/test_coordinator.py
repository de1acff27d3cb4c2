"""The coordinator: one worker of a board keeps house, and no run depends on it."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from blackboard.clock import SystemClock
from blackboard.emitter import EventEmitter
from blackboard.errors import BadInput
from blackboard.events import (
    BoardCounted,
    BoardExamined,
    CoordinatorElected,
    CoordinatorEnded,
    HousekeepingTrouble,
    Housekept,
    OverdueRun,
    RunEnded,
    StoreChanged,
    TimesPutRight,
)
from blackboard.model import VERSION, Message, MessageKind, Statistics, replace
from blackboard.notify.notice_rows import begin, end
from blackboard.notify.notices import Notice, of_overdue
from blackboard.notify.settings import NoticeKind
from blackboard.protocol import additions, edits, keys, leaders, mail
from blackboard.protocol.actions import record_action
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.leaders import COORDINATOR, open_elections
from blackboard.protocol.retention import Retention
from blackboard.protocol.status import read_statistics
from blackboard.rules.breaker import LONGEST, MANY
from blackboard.rules.status import COUNTED_EVERY
from blackboard.sharing import coordinator
from blackboard.sharing.coordinator import (
    ENTERS_AFTER,
    LEASE,
    Coordinator,
    Housekeeping,
    TermOver,
    prunes_every,
)
from blackboard.spec import Spec
from blackboard.stores import open_table
from blackboard.table import (
    ANY,
    Delete,
    Etag,
    Insert,
    Merge,
    Op,
    Row,
    Table,
    Unavailable,
    Value,
    read,
)
from blackboard.worker.steady_clock import SteadyClock
from blackboard.worker.worker import Mode
from tests.support.boards import Scene, story
from tests.support.clocks import ManualClock
from tests.support.faults import Fault
from tests.support.patience import patience
from tests.support.plans import DAY
from tests.support.processes import eventually, own_environ, whole_lines
from tests.support.stores import rows_of
from tests.support.turns import one_turn, settled
from tests.support.workers import PATIENCE, FaultyShards, WorkerScene, Workplace, with_workers

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")

CHECK = LEASE / 3


class Watched(FaultyShards):
    """Counts the requests under way: no time passes meanwhile."""

    under_way: ClassVar[int] = 0

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        with self._under_way():
            return await super().commit(partition, ops)

    async def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        rows = aiter(super().scan(partition, first, last, limit))
        while True:
            with self._under_way():
                row = await anext(rows, None)
            if row is None:
                return
            yield row

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        Watched.under_way += 1
        try:
            yield
        finally:
            Watched.under_way -= 1


async def worker(place: Workplace, *, own: bool = False, **about: Any) -> WorkerScene:
    """A worker whose requests are watched; with `own` on a board of its own."""
    board = await place.board_of_its_own() if own else place.board
    return await place.worker(board=board.using(Watched(board.table)), **about)


async def passes(clock: ManualClock, seconds: float, *, by: float = 5.0) -> None:
    """Time passes, and what is due is done."""
    end = clock.monotonic() + seconds
    while clock.monotonic() < end:
        await settled()
        while Watched.under_way:
            await one_turn()
        clock.advance(min(by, end - clock.monotonic()))


async def happens(place: Scene, condition: Callable[[], object], what: str) -> None:
    """Time passes until that is so."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await passes(place.clock, 1.0, by=0.25)
    except TimeoutError:
        raise AssertionError(f"it did not happen: {what}") from None


async def coordinating(place: Workplace, *workers: WorkerScene) -> WorkerScene:
    """The one of some workers that is elected."""
    await happens(
        place, lambda: [one for one in workers if one.of(CoordinatorElected)], "one is elected"
    )
    (found,) = [one for one in workers if one.of(CoordinatorElected)]
    return found


async def counted(board: BoardTable, **about: object) -> Statistics:
    """The statistics, once they are so."""
    clock = board.clock
    assert isinstance(clock, ManualClock)
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await read_statistics(board)
            if found and all(getattr(found, name) == value for name, value in about.items()):
                return found
            await passes(clock, 1.0, by=0.25)


# ---- who does it

above_the_store = pytest.mark.of_one_store("a worker stands for election above the store")


@pytest.mark.of_each_store
@with_workers
async def test_one_of_two_workers_coordinates_and_the_other_when_it_is_shut_down(
    place: Workplace,
) -> None:
    await place.add("davis", every="8h")
    one = await worker(place, own=True, owner="one", at_once=True, coordinator=True)
    other = await worker(place, own=True, owner="other", at_once=True, coordinator=True)
    first = await coordinating(place, one, other)
    second = other if first is one else one
    found = await counted(place.other, by=first.worker.events.worker, term=1)
    assert (found.items, found.active) == (1, 1)
    await first.stop()
    assert [one.reason for one in first.of(CoordinatorEnded)] == ["the worker ends"]
    began = place.clock.monotonic()
    await happens(place, lambda: second.of(CoordinatorElected), "it follows")
    assert place.clock.monotonic() - began <= CHECK.total_seconds() + 5
    found = await counted(place.other, by=second.worker.events.worker, term=2)
    assert found.items == 1


@with_workers
async def test_the_items_are_counted_again_and_again(place: Workplace) -> None:
    await place.add("davis", every="8h")
    made = await worker(place, at_once=True, coordinator=True)
    await coordinating(place, made)
    first = await counted(place.other, items=1)
    await place.add("elko", every="8h")
    again = await counted(place.other, items=2)
    assert again.at - first.at <= COUNTED_EVERY + timedelta(seconds=10)


@above_the_store
@story
async def test_it_reports_which_items_are_failing(scene: Scene) -> None:
    for item_id in ("davis", "keene"):
        await scene.add(item_id)
    await scene.let_go(await scene.claimed("davis"), "failed")
    told: list[Any] = []
    await housekeeping(scene, told).count()
    (counted,) = told
    assert isinstance(counted, BoardCounted)
    assert (counted.items, counted.failing) == (2, ("davis",))
    assert counted.message == "2 items, 1 failing"


@pytest.mark.parametrize(
    ("mode", "coordinator"), [(Mode.FOREVER, False), (Mode.ONCE, True), (Mode.UNTIL_IDLE, True)]
)
@with_workers
async def test_a_worker_that_has_an_end_or_is_not_to_takes_no_part(
    place: Workplace, mode: Mode, *, coordinator: bool
) -> None:
    await place.add("davis", every="8h", stale_after="60s")
    made = await worker(place, mode=mode, coordinator=coordinator)
    held = await made.run("davis")
    await passes(place.clock, 2 * ENTERS_AFTER)
    held.end()
    await made.tells(RunEnded)
    with pytest.raises(BadInput, match="leaders"):
        await open_elections(place.other)
    assert await read_statistics(place.other) is None


@above_the_store
@with_workers
async def test_a_worker_takes_part_half_a_minute_after_its_start(place: Workplace) -> None:
    made = await worker(place, coordinator=True)
    await passes(place.clock, ENTERS_AFTER - 1)
    with pytest.raises(BadInput, match="leaders"):
        await open_elections(place.other)
    await coordinating(place, made)


@above_the_store
@with_workers
async def test_a_worker_that_stops_is_not_elected_while_its_runs_may_finish(
    place: Workplace,
) -> None:
    await place.add("davis", every="8h", stale_after="60s")
    made = await worker(place, coordinator=True, grace=timedelta(seconds=4 * ENTERS_AFTER))
    held = await made.run("davis")
    made.worker.stop()
    await passes(place.clock, 2 * ENTERS_AFTER)
    with pytest.raises(BadInput, match="leaders"):
        await open_elections(place.other)
    held.end()
    await made.tells(RunEnded)


@above_the_store
@with_workers
async def test_a_coordinator_that_stops_resigns_before_its_runs_have_finished(
    place: Workplace,
) -> None:
    await place.add("davis", every="8h", stale_after="60s")
    made = await worker(place, coordinator=True, grace=timedelta(seconds=4 * ENTERS_AFTER))
    held = await made.run("davis")
    await coordinating(place, made)
    made.worker.stop()
    await happens(place, lambda: made.of(CoordinatorEnded), "it resigns")
    assert not made.of(RunEnded)
    held.end()
    await made.tells(RunEnded)


# ---- trouble


@above_the_store
@with_workers
async def test_items_run_while_no_worker_can_be_elected(place: Workplace) -> None:
    """The election is of another kind: it belongs to a program."""
    elections = await open_elections(place.other, create=True)
    await additions.add_election(elections, COORDINATOR, "bully", Spec(every="1s"))
    made = await worker(place, at_once=True, coordinator=True)
    await happens(place, lambda: made.of(HousekeepingTrouble), "it is reported")
    assert "'coordinator' is a bully" in made.of(HousekeepingTrouble)[0].message
    await place.add("davis", every="8h")
    await made.walk()
    assert await place.ended("davis") == [(1, "ok")]


@above_the_store
@with_workers
async def test_a_store_that_is_away_is_counted_the_next_time(place: Workplace) -> None:
    made = await worker(place, coordinator=True)
    await coordinating(place, made)
    first = await counted(place.other)
    place.table.script_reads(*[Fault.AWAY] * 2)
    await happens(place, lambda: place.table.quiet, "two requests fail")
    await place.add("davis", every="8h")
    later = await counted(place.other, items=1)
    assert later.at > first.at
    assert (made.of(HousekeepingTrouble), made.of(CoordinatorEnded)) == ([], [])


class OneFailure(Watched):
    """A partition fails once, when it is first read."""

    def __init__(self, table: Table, partition: str) -> None:
        super().__init__(table)
        self.fails = {partition}

    async def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        if partition in self.fails:
            self.fails.remove(partition)
            raise Unavailable("it answered 500")
        async for row in super().scan(partition, first, last, limit):
            yield row


@above_the_store
@pytest.mark.parametrize(
    "partition_of", [keys.actions_partition, keys.notices_partition], ids=["actions", "notices"]
)
@with_workers
async def test_what_one_error_ended_is_done_again_soon(
    place: Workplace, partition_of: Callable[[str], str]
) -> None:
    """Not on the next day. Until then the store would count as away."""
    board = place.board
    table = OneFailure(board.table, partition_of(board.name))
    made = await place.worker(board=board.using(table), at_once=True, coordinator=True)
    await coordinating(place, made)
    await happens(place, lambda: not table.fails, "it fails")
    began = place.clock.monotonic()
    await happens(place, lambda: made.of(Housekept), "it is pruned")
    assert place.clock.monotonic() - began <= 2 * LONGEST
    assert [one.away for one in made.of(StoreChanged)] == [True, False]
    await passes(place.clock, 2 * 3600, by=60)
    assert len(made.of(Housekept)) == 1


@above_the_store
@with_workers
async def test_a_worker_that_could_not_enter_the_election_tries_again_soon(
    place: Workplace,
) -> None:
    board = place.board
    elections = await open_elections(place.other, create=True)
    table = OneFailure(board.table, elections.shard(0))
    made = await place.worker(board=board.using(table), at_once=True, coordinator=True)
    await happens(place, lambda: not table.fails, "it fails")
    began = place.clock.monotonic()
    await coordinating(place, made)
    assert place.clock.monotonic() - began <= 2 * LONGEST


@above_the_store
@with_workers
async def test_failures_are_counted_from_the_last_entry_into_the_election_on(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many came before, weeks ago."""
    tries: list[float] = []

    async def fails_but_once(*said: Any, **about: Any) -> BoardTable:
        tries.append(place.clock.monotonic())
        if len(tries) == MANY + 1:
            return await open_elections(*said, **about)
        raise Unavailable("it answered 500")

    async def fails(*_: object) -> None:
        raise Unavailable("it answered 500")

    monkeypatch.setattr(leaders, "open_elections", fails_but_once)
    monkeypatch.setattr(Coordinator, "_serve", fails)
    await place.worker(at_once=True, coordinator=True)
    await happens(place, lambda: len(tries) > MANY + 2, "it is tried again")
    assert tries[-1] - tries[-2] <= 2 * LONGEST


@above_the_store
@with_workers
async def test_housekeeping_that_fails_ends_no_worker(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(coordinator, "count", fails)
    made = await worker(place, at_once=True, coordinator=True)
    await happens(place, lambda: len(made.of(HousekeepingTrouble)) > 1, "it fails twice")
    assert made.of(HousekeepingTrouble)[1].message == "count: ZeroDivisionError: oh"
    assert made.of(CoordinatorEnded) == []
    await place.add("davis", every="8h")
    await made.walk()
    assert await place.ended("davis") == [(1, "ok")]


@with_workers
async def test_a_coordinator_that_was_overtaken_stops(place: Workplace) -> None:
    made = await worker(place, coordinator=True)
    await coordinating(place, made)
    elections = await open_elections(place.other)
    await edits.pause(elections, COORDINATOR, place.mark())
    await edits.unlock(elections, COORDINATOR, place.mark(), fence=1)
    await happens(place, lambda: made.of(CoordinatorEnded), "its term ends")
    found = await read_statistics(place.other)
    await passes(place.clock, 3 * COUNTED_EVERY.total_seconds())
    assert await read_statistics(place.other) == found
    await edits.resume(elections, COORDINATOR, place.mark())
    await happens(place, lambda: len(made.of(CoordinatorElected)) > 1, "it is elected again")
    assert made.of(CoordinatorElected)[1].term == 3


@above_the_store
@with_workers
async def test_an_election_that_cannot_be_read_is_reported_once(place: Workplace) -> None:
    made = await worker(place, coordinator=True)
    await coordinating(place, made)
    elections = await open_elections(place.other)
    harm = Merge(keys.item_key(COORDINATOR), {"state": "odd"}, ANY)
    gone = Delete(keys.lock_key(COORDINATOR), ANY)
    await elections.table.commit(elections.shard(0), [harm, gone])
    await happens(place, lambda: made.of(HousekeepingTrouble), "its checks fail")
    await passes(place.clock, 10 * CHECK.total_seconds())
    (trouble,) = made.of(HousekeepingTrouble)
    assert trouble.message.startswith("the election: row item:coordinator: no good state")


# ---- what it does


def housekeeping(scene: Scene, told: list[Any] | None = None, **about: Any) -> Housekeeping:
    events = EventEmitter("me")
    if told is not None:
        events.subscribe(told.append)
    scene.trust_clock()
    retention = Retention(runs=10, age=timedelta(days=7), tombstones=timedelta(hours=1))
    return Housekeeping(
        board=about.pop("board", scene.board),
        events=events,
        retention=retention,
        cycle=timedelta(minutes=1),
        steady=about.pop("steady", None) or SteadyClock(scene.clock, events),
        **about,
    )


async def a_tombstone(board: BoardTable, item_id: str) -> None:
    item_type = keys.group_of(board.name) or "feed"
    await additions.ensure(board, [item_id], item_type)
    await edits.remove(board, item_id)


async def a_group(scene: Scene) -> BoardTable:
    """The board of a group that the row of its parent names."""
    about: dict[str, Value] = {"kind": "pump", "partitions": 1, "lease": 30.0}
    meta = keys.meta_partition("town")
    await scene.table.table.commit(meta, [Insert(keys.group_key("clicks"), about)])
    return scene.other.group("clicks")


async def a_notice(scene: Scene, item_id: str) -> Notice:
    now = scene.clock.now()
    run = OverdueRun(id=item_id, type="feed", fence=1, due=now, ready=now, attempt=1, failures=0)
    notice = of_overdue(run)
    await begin(scene.other, notice, again=None)
    return notice


async def an_action(board: BoardTable) -> None:
    await record_action(board, by="ann", verb="pause", ids=["davis"], via="cli")


async def a_letter(board: BoardTable) -> None:
    letter = Message(id="report", to="gone", sender="me", rank=0, kind=MessageKind.OK, number=1)
    await mail.send(board, [letter])


@story
async def test_it_deletes_what_is_kept_no_longer_of_all_that_belongs_to_the_board(
    scene: Scene,
) -> None:
    clicks, elections = await a_group(scene), await open_elections(scene.other, create=True)
    for board in (scene.other, clicks, elections):
        await a_tombstone(board, "gone")
    await scene.add("here")
    for name in ("gone", "here", "never"):
        await a_notice(scene, name)
    await a_letter(elections)
    scene.later(days=2)
    await a_letter(elections)
    told: list[Any] = []
    await housekeeping(scene, told).prune()
    (done,) = told
    assert isinstance(done, Housekept)
    assert (done.runs, done.tombstones, done.notices, done.mail, done.actions) == (0, 3, 2, 1, 0)
    for board in (scene.other, clicks, elections):
        assert await board.item("gone") is None
        assert await board.floor() == 1
    notices = await rows_of(scene.table.table, keys.notices_partition("town"))
    assert [row.data["item"] for row in notices] == ["here"]
    assert len(await rows_of(scene.table.table, keys.mail_partition(elections.name))) == 1
    await housekeeping(scene, told).prune()
    assert told[1].details == dict.fromkeys(done.details, 0)


@pytest.mark.of_each_store
@story
async def test_a_row_of_no_group_keeps_nothing_from_being_deleted(scene: Scene) -> None:
    await open_elections(scene.other, create=True)
    bad = Insert(f"{keys.GROUP}a.b", {"kind": "pump"})
    await scene.table.table.commit(keys.meta_partition("town"), [bad])
    await an_action(scene.other)
    scene.later(days=8)
    told: list[Any] = []
    await housekeeping(scene, told).prune()
    assert [one.actions for one in told] == [1]


@pytest.mark.of_each_store
@story
async def test_a_row_that_cannot_be_used_keeps_nothing_else_from_being_deleted(
    scene: Scene,
) -> None:
    """The floor of the board, and the own row of the elections' board."""
    meta = keys.meta_partition("town")
    clicks, elections = await a_group(scene), await open_elections(scene.other, create=True)
    damage = Merge(keys.BOARD_KEY, {"shards": 0}, ANY)
    await scene.table.table.commit(keys.meta_partition(elections.name), [damage])
    for board in (scene.other, clicks):
        await a_tombstone(board, "gone")
        await an_action(board)
    await a_notice(scene, "gone")
    await scene.table.table.commit(meta, [Insert(keys.FLOOR_KEY, {"fence": -1})])
    scene.later(days=8)
    told: list[Any] = []
    await housekeeping(scene, told).prune()
    *troubles, done = told
    assert [type(one) for one in troubles] == [HousekeepingTrouble] * 2
    assert [one.message.split(" (")[0] for one in troubles] == [
        "prune town.leaders: row board: no good shards",
        "prune town: row floor: no good fence",
    ]
    assert (done.tombstones, done.actions, done.notices) == (1, 2, 1)
    assert await clicks.item("gone") is None
    assert await scene.other.item("gone") is not None
    await scene.table.table.commit(meta, [Delete(keys.FLOOR_KEY, ANY)])


@story
async def test_it_deletes_actions_that_are_older_than_the_history(scene: Scene) -> None:
    elections = await open_elections(scene.other, create=True)
    for board in (scene.other, elections):
        await an_action(board)
    scene.later(days=6)
    await an_action(scene.other)
    told: list[Any] = []
    await housekeeping(scene, told).prune()
    scene.later(days=2)
    await housekeeping(scene, told).prune()
    assert [one.actions for one in told] == [0, 2]
    assert told[1].message.endswith("2 actions")
    assert len(await rows_of(scene.table.table, keys.actions_partition("town"))) == 1


@pytest.mark.of_each_store
@story
async def test_a_notice_of_an_item_that_is_added_anew_meanwhile_stays(scene: Scene) -> None:
    await open_elections(scene.other, create=True)
    await a_tombstone(scene.other, "davis")
    await a_notice(scene, "davis")
    scene.later(hours=2)

    async def again() -> None:
        await scene.add("davis")
        partition, key = keys.notices_partition("town"), keys.notice_key("davis", "overdue")
        await scene.table.table.commit(partition, [Merge(key, {"fence": 7}, ANY)])

    scene.table.script(again)
    told: list[Any] = []
    await housekeeping(scene, told).prune()
    assert (told[0].tombstones, told[0].notices) == (0, 0)
    (row,) = await rows_of(scene.table.table, keys.notices_partition("town"))
    assert row.data["fence"] == 7


@pytest.mark.of_each_store
@story
async def test_it_deletes_the_rows_of_recoveries_that_are_over(scene: Scene) -> None:
    await open_elections(scene.other, create=True)
    await scene.add("davis")
    notice = await a_notice(scene, "davis")
    assert await end(scene.other, replace(notice, event=NoticeKind.RECOVERED))
    told: list[Any] = []
    await housekeeping(scene, told).prune()
    scene.later(hours=2)
    await housekeeping(scene, told).prune()
    assert [one.notices for one in told] == [0, 1]
    assert await rows_of(scene.table.table, keys.notices_partition("town")) == []


@story
async def test_it_stops_before_the_next_request_when_its_term_is_over(scene: Scene) -> None:
    for number in range(5):
        await a_tombstone(scene.other, f"gone-{number}")
    scene.later(hours=2)
    scene.table.batches.clear()
    asked = 0

    def is_over() -> bool:
        nonlocal asked
        asked += 1
        return asked > 1

    with pytest.raises(TermOver):
        await housekeeping(scene, is_over=is_over).prune()
    assert scene.table.batches == [], "it has read the histories"
    with pytest.raises(TermOver):
        await housekeeping(scene, is_over=lambda: True).count()
    assert await read_statistics(scene.other) is None


@story
async def test_it_deletes_what_is_old_besides_histories_before_it_looks_at_these(
    scene: Scene,
) -> None:
    """A term may end while it prunes the histories of a large board."""
    elections = await open_elections(scene.other, create=True)
    await a_notice(scene, "gone")
    await a_letter(elections)
    for board in (scene.other, elections):
        await an_action(board)
    scene.later(days=8)

    class PrunedHistories(Exception):
        pass

    def no_items(*_: object, **__: object) -> None:
        raise PrunedHistories

    scene.board.items_and_tombstones = no_items  # type: ignore[assignment,method-assign]
    with pytest.raises(PrunedHistories):
        await housekeeping(scene).prune()
    for partition in (
        keys.notices_partition("town"),
        keys.mail_partition(elections.name),
        keys.actions_partition("town"),
        keys.actions_partition(elections.name),
    ):
        assert await rows_of(scene.table.table, partition) == []


@story
async def test_two_coordinators_at_once_do_no_harm(scene: Scene) -> None:
    """Each is at every moment of the other's work once."""
    await open_elections(scene.other, create=True)
    for turn in range(3):
        for number in range(3):
            await a_tombstone(scene.other, f"gone-{number}")
        await scene.add(f"here-{turn}")
        scene.later(hours=2)
        told: list[Any] = []
        other = housekeeping(scene, told, board=scene.other, term=turn + 2)

        async def meanwhile(other: Housekeeping = other) -> None:
            await other.prune()
            await other.count()

        scene.table.script(*[Fault.NONE] * turn, meanwhile)
        late = housekeeping(scene, told, term=turn + 1)
        await late.prune()
        await late.count()
        assert scene.table.quiet
        assert sum(one.tombstones for one in told if isinstance(one, Housekept)) == 3
        items = [item async for item in scene.other.items_and_tombstones(0)]
        assert [item.id for item in items] == [f"here-{number}" for number in range(turn + 1)]
        found = await read_statistics(scene.other)
        assert found is not None
        assert (found.items, found.term) == (turn + 1, turn + 2), "the later term's"


@story
async def test_it_examines_the_board_and_repairs_nothing(scene: Scene) -> None:
    await scene.add("davis")
    told: list[Any] = []
    await housekeeping(scene, told, items=1).examine()
    item = await scene.item()
    change = [Merge(keys.item_key("davis"), {"running": True}, item.etag)]
    await scene.table.table.commit(scene.other.partition("davis"), change)
    broken = await scene.rows()
    await housekeeping(scene, told, items=1).examine()
    clean, found = told
    assert isinstance(found, BoardExamined)
    assert (clean.message, clean.findings) == ("clean: 1 item", ())
    assert found.message.startswith("2 findings (`blackboard doctor`): D2 davis ")
    assert {one.code for one in found.findings} == {"D2"}
    assert json.loads(json.dumps(found.line()))["findings"][0]["subject"] == "davis"
    assert await scene.rows() == broken
    back = [Merge(keys.item_key("davis"), {"running": False}, ANY)]
    await scene.table.table.commit(scene.other.partition("davis"), back)


@pytest.mark.parametrize("items", [None, coordinator.LARGEST_EXAMINED + 1])
@story
async def test_a_board_that_is_very_large_or_was_not_counted_yet_is_not_examined(
    scene: Scene, items: int | None
) -> None:
    told: list[Any] = []
    await housekeeping(scene, told, items=items).examine()
    assert told == []


@story
async def test_a_very_large_board_whose_count_cannot_be_written_is_not_examined(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "LARGEST_EXAMINED", 1)
    for name in ("davis", "elko"):
        await scene.add(name)
    newer = Insert(keys.STATS_KEY, {"version": 2})
    await scene.table.table.commit(keys.meta_partition("town"), [newer])
    told: list[Any] = []
    house = housekeeping(scene, told)
    await house.count()
    await house.examine()
    assert [type(one) for one in told] == [BoardCounted]


NAMES = ["davis", "elko", "fresno", "keene", "reno"]


async def set_back(scene: Scene) -> Housekeeping:
    """Items that a clock which was ahead has planned, and one that has watched it come back."""
    for name in NAMES:
        await scene.add(name, cron="0 3 * * *")
    scene.clock.jump(30 * 86_400.0)
    for name in NAMES:
        await scene.let_go(await scene.claimed(name))
    scene.clock.jump(-30 * 86_400.0)
    await scene.rows()
    house = housekeeping(scene, [])
    house.steady.returned = scene.clock.monotonic()
    return house


async def left_behind(scene: Scene) -> list[str]:
    """Those that wait for a time which only a wrong clock explains."""
    return [name for name in NAMES if (await scene.item(name)).ready > scene.clock.now() + DAY]


@above_the_store
@story
async def test_one_that_cannot_be_planned_anew_is_reported_once_and_keeps_none_back(
    scene: Scene,
) -> None:
    house = await set_back(scene)
    told = list[Any]()
    house.events.subscribe(told.append)
    assert await left_behind(scene) == NAMES
    await changed(scene, "elko", version=VERSION + 1)
    await house.plan_anew()
    assert [one.id for one in told if isinstance(one, TimesPutRight)] == [NAMES[0], *NAMES[2:]]
    (trouble,) = [one.message for one in told if isinstance(one, HousekeepingTrouble)]
    assert trouble.startswith("plan elko anew: ")
    assert await left_behind(scene) == ["elko"]
    told.clear()
    await changed(scene, "elko", version=VERSION)
    await house.plan_anew()
    assert told == []


async def changed(scene: Scene, item_id: str, **columns: Value) -> None:
    change = [Merge(keys.item_key(item_id), columns, ANY)]
    await scene.table.table.commit(scene.other.partition(item_id), change)


@above_the_store
@story
async def test_nothing_more_is_planned_anew_once_the_clock_has_jumped_again(scene: Scene) -> None:
    house = await set_back(scene)
    steady = house.steady

    def jumps(event: Any) -> None:
        if isinstance(event, TimesPutRight) and event.id == "elko":
            steady.returned = None

    house.events.subscribe(jumps)
    await house.plan_anew()
    assert await left_behind(scene) == NAMES[2:]


def test_where_little_is_kept_it_prunes_more_often() -> None:
    assert prunes_every(Retention()) == timedelta(days=1)
    assert prunes_every(Retention(age=timedelta(hours=4))) == timedelta(hours=1)
    assert prunes_every(Retention(tombstones=timedelta(hours=2))) == timedelta(minutes=30)
    assert prunes_every(Retention(age=timedelta(seconds=1))) == COUNTED_EVERY


# ---- real processes

WORKER = """
import sys
from datetime import timedelta
from blackboard.sharing import coordinator

coordinator.ENTERS_AFTER = 0.2
coordinator.LEASE = timedelta(seconds=3)
coordinator.COUNTED_EVERY = timedelta(seconds=1)
from blackboard.cli import main
from tests.support.turns import one_turn, settled
main()
"""


@pytest.fixture(name="start")
def _start(store_url: str, tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    (tmp_path / "jobs.py").write_text(
        "from blackboard import handler\n"
        "@handler('feed', every='1h')\n"
        "async def feed(item, ctx): ...\n"
    )
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        arguments = ("worker", "--init", "--store", store_url, "--jobs", "jobs.py")
        with (tmp_path / f"log-{len(started)}").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", WORKER, *arguments],
                cwd=tmp_path,
                env=own_environ(),
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        started.append(process)
        return process

    yield start
    for one in started:
        if one.poll() is None:
            one.kill()
        one.wait()


def told(folder: Path, number: int, event: str) -> list[dict[str, Any]]:
    lines = whole_lines(folder / f"log-{number}")
    events = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    return [one for one in events if one["event"] == event]


def status(store_url: str, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "blackboard", "status", "--json", "--store", store_url],
        cwd=folder,
        env=own_environ(),
        capture_output=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def counted_by(store_url: str) -> str:
    """The worker that has written the statistics; "" before."""

    async def read_row() -> str:
        table = await open_table(store_url, SystemClock())
        try:
            row = await read(table, keys.meta_partition("blackboard"), keys.STATS_KEY)
            return str(row.data["by"]) if row is not None else ""
        finally:
            await table.close()

    return asyncio.run(read_row())


def test_when_the_coordinator_is_killed_the_other_worker_goes_on_within_a_lease(
    start: Callable[[], subprocess.Popen[bytes]], store_url: str, tmp_path: Path
) -> None:
    workers = [start(), start()]

    def elected() -> list[int]:
        return [number for number in (0, 1) if told(tmp_path, number, "coordinator elected")]

    eventually(lambda: all(told(tmp_path, n, "worker started") for n in (0, 1)), "both are there")
    (first,) = eventually(elected, "one is elected")
    by = told(tmp_path, first, "coordinator elected")[0]["worker"]
    eventually(lambda: counted_by(store_url) == by, "it counts")
    workers[first].send_signal(signal.SIGKILL)
    workers[first].wait()
    eventually(lambda: len(elected()) == 2, "the other follows", seconds=patience(3 + 1 + 1.5))
    (line,) = told(tmp_path, 1 - first, "coordinator elected")
    assert line["message"] == "term 2"
    eventually(lambda: counted_by(store_url) == line["worker"], "it counts on")
    found = status(store_url, tmp_path)
    assert (found["coordinator"]["worker"], found["coordinator"]["term"]) == (line["worker"], 2)
    workers[1 - first].send_signal(signal.SIGTERM)
    assert workers[1 - first].wait(patience(20)) == 0
    assert status(store_url, tmp_path)["coordinator"] is None, "it has resigned"
