"""What is ready wakes a worker, whatever else lies on the board; and no odd row ends one."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from blackboard.events import RunEnded, SlotSkipped
from blackboard.model import Lock, Mark, Token, replace
from blackboard.protocol import keys
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import override
from blackboard.protocol.retention import Retention
from blackboard.table import ANY, Delete, Insert, Merge
from blackboard.worker import selection
from blackboard.worker.backlog import Unread
from blackboard.worker.peers import HEAD_START, Peers
from blackboard.worker.shard_tasks import SLOW
from blackboard.worker.worker import CROWDED_PAUSE
from tests.support.stores import OpenTable
from tests.support.workers import (
    Workplace,
    add_later,
    beside_an_odd_lock,
    ids_by_turn,
    ids_of_shard,
    until,
    with_workers,
)

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")


def after_the_next_reading(
    monkeypatch: pytest.MonkeyPatch, action: Callable[[], Awaitable[None]]
) -> None:
    """Something happens when the rows of a shard were read, before all of them are judged."""
    honest, actions = BoardTable.read_shard, [action]

    async def walk(board: BoardTable, shard: int, **how: Any) -> AsyncIterator[Lock | Token | Mark]:
        async for found in honest(board, shard, **how):
            yield found
        if actions:
            await actions.pop()()

    monkeypatch.setattr(BoardTable, "read_shard", walk)


@with_workers
async def test_what_waits_for_its_turn_is_seen_beside_a_full_type(place: Workplace) -> None:
    """The worker that comes first has no free slot, or is dead."""
    for number in range(150):  # more than a walk keeps in mind
        await place.add(f"rare-{number:02}", item_type="rare")
    token = replace(await place.token("rare-00"), type="feed")
    place.later(seconds=1)
    worker = await place.worker(slots=8)
    await worker.run("rare-00")
    peers = worker.worker.walk.peers
    peers.note("other", ["feed"])
    (late,), _ = ids_by_turn(peers, token, 1)
    await place.add(late)
    worker.wake.wishes.clear()
    await worker.walk()
    assert worker.order == ["rare-00"]
    assert min(worker.wake.wishes) == HEAD_START.total_seconds()
    place.later(seconds=HEAD_START.total_seconds())
    await worker.looks_again()
    assert worker.order == ["rare-00", late]


@with_workers
async def test_a_worker_reads_on_behind_what_others_are_the_first_to_take(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "AHEAD", 3)
    await place.add("davis")
    token = await place.token("davis")
    worker = await place.worker(slots=1, at_once=True)
    peers = worker.worker.walk.peers
    peers.note("other", ["feed"])
    theirs, (last, *_) = ids_by_turn(peers, token, 2 * (1 + 3) + 1)
    for item_id in [*theirs, last]:
        await place.add(item_id)
        place.later(seconds=0.001)
    worker.wake.wishes.clear()
    await worker.walk()
    assert worker.order == ["davis"]
    assert min(worker.wake.wishes) < CROWDED_PAUSE
    await worker.looks_again()
    assert worker.order == ["davis", last]


@with_workers
async def test_a_worker_that_is_joined_by_as_many_leaves_them_what_it_has_read(
    place: Workplace,
) -> None:
    await place.add("davis")
    token = await place.token("davis")
    worker = await place.worker(slots=1, at_once=True)
    peers = worker.worker.walk.peers
    before = Peers("me", ["feed"])
    before.note("other", ["feed"])
    theirs, own = ids_by_turn(before, token, 4)
    for item_id in [*theirs, *own]:
        await place.add(item_id)
        place.later(seconds=0.001)
    assert not peers.most
    await worker.walk()
    assert worker.order == ["davis", theirs[0]]
    peers.note("other", ["feed"])
    for _ in own:
        await worker.looks_again()
    assert worker.order == ["davis", theirs[0], *own]
    readings = place.table.requests.pages
    peers.note("third", ["feed"])
    await worker.looks_again()
    assert place.table.requests.pages == readings, "one more changes little"


@pytest.mark.parametrize("alone", [True, False])
def test_what_comes_next_is_seen_beside_a_full_type(open_table: OpenTable, *, alone: bool) -> None:
    @with_workers
    async def story(place: Workplace) -> None:
        for number in range(60):  # more than a walk keeps in mind
            await place.add(f"rare-{number:02}", item_type="rare")
        place.later(seconds=1)
        worker = await place.worker(slots=8)
        await worker.run("rare-00")
        if not alone:
            worker.worker.walk.backlog.lost_race(0, place.clock.monotonic())
        await add_later(place, "feed", 5)
        worker.wake.wishes.clear()
        await worker.walk()
        assert any(wish < 7 for wish in worker.wake.wishes)

    story(open_table=open_table)


@with_workers
async def test_slots_that_stay_free_beside_tokens_of_others_are_filled_soon(
    place: Workplace,
) -> None:
    """The shard is read on for tokens of its own, and what is left to others is read again."""
    worker = await place.worker(slots=20, cycle=timedelta(hours=1))
    await place.announced()
    for number in range(300):
        worker.worker.walk.peers.note(f"other-{number}", ["feed"])
    await place.fill(3000)
    place.later(seconds=10)
    worker.wake.wishes.clear()
    await worker.walk()
    assert 0 < len(worker.order) < 20
    looks = 0
    while len(worker.order) < 20:
        assert min(worker.wake.wishes) <= 0.25
        worker.wake.wishes.clear()
        place.later(seconds=0.25)
        await worker.looks_again()
        looks += 1
    assert looks < 10


def test_what_becomes_ready_while_another_shard_is_read_is_not_forgotten(
    open_table: OpenTable,
) -> None:
    @with_workers
    async def story(place: Workplace, shards: int) -> None:
        worker = await place.worker(slots=2)
        first = ids_of_shard(place.board, 0)[0]
        await add_later(place, first, SLOW / 8)
        await add_later(place, ids_of_shard(place.board, 1)[0], 50)
        begun, backlog = place.clock.now(), worker.worker.walk.backlog

        async def nothing() -> None:
            """The first shard takes no time."""

        async def slowly() -> None:
            await until(lambda: backlog.next_at(begun), "the first shard is read")
            place.clock.advance(0.75 * SLOW)

        place.table.script_reads(nothing, slowly)
        backlog.begin(place.clock.monotonic())
        await worker.walk()
        await worker.run(first)

    story(open_table=open_table, shards=2)


def test_who_was_slower_in_one_shard_looks_soon_at_what_it_knows_of_another(
    open_table: OpenTable,
) -> None:
    @with_workers
    async def story(place: Workplace, shards: int) -> None:
        first, second = (ids_of_shard(place.board, number)[0] for number in range(shards))
        for item_id in (first, second):
            await place.add(item_id)
            place.later(seconds=1)

        async def another_is_faster() -> None:
            await place.claimed(first, board=place.other, owner="another")

        place.table.script(another_is_faster)
        worker = await place.worker(slots=1)
        assert worker.order == []
        assert any(wish < 1 for wish in worker.wake.wishes)
        place.later(seconds=1)
        worker.wake.now()
        await worker.run(second)

    story(open_table=open_table, shards=2)


def test_a_shard_that_was_passed_over_for_what_was_lost_is_looked_at_soon(
    open_table: OpenTable,
) -> None:
    """A token was known for the only slot, and is taken by another."""

    @with_workers
    async def story(place: Workplace, shards: int) -> None:
        known, unread = (ids_of_shard(place.board, number)[0] for number in range(shards))
        await add_later(place, known, 2)
        worker = await place.worker(slots=1)
        await add_later(place, unread, 3)
        worker.worker.walk.expect(unread, place.clock.now() + timedelta(seconds=3))
        place.later(seconds=5)

        async def another_is_faster() -> None:
            await place.claimed(known, board=place.other, owner="another")

        place.table.script(another_is_faster)
        worker.wake.wishes.clear()
        await worker.looks_again()
        assert worker.order == []
        assert any(wish < 1 for wish in worker.wake.wishes)
        worker.wake.now()
        await worker.run(unread)

    story(open_table=open_table, shards=2)


@with_workers
async def test_what_is_let_go_while_its_shard_is_read_is_run_when_it_is_ready(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new token came too late for the page, and the next beat is far."""
    await place.add("davis", every="20s", stale_after="10s")
    worker = await place.worker(slots=2)
    running = await worker.run("davis")

    async def davis_ends() -> None:
        running.end()
        await worker.tells(RunEnded)

    after_the_next_reading(monkeypatch, davis_ends)
    await worker.walk()
    assert worker.of(RunEnded)
    place.later(seconds=21)
    worker.wake.now()
    await worker.run("davis", 1)


@with_workers
async def test_a_slot_that_is_freed_while_a_shard_is_read_is_filled(place: Workplace) -> None:
    """There was none when the walk began, and who let go knew of nothing that was due."""
    await place.add("davis", every="1h")
    worker = await place.worker(slots=1)
    running = await worker.run("davis")
    await place.add("elko")
    place.later(seconds=1)

    async def davis_ends() -> None:
        running.end()
        await worker.tells(RunEnded)

    place.table.script_reads(davis_ends)
    worker.wake.beat()
    await worker.run("elko")


@with_workers
async def test_a_slot_that_is_freed_is_for_what_lies_behind_the_tokens_of_others(
    place: Workplace,
) -> None:
    """They were too many to read on, and then there was no slot."""
    await place.add("davis", every="1h")
    worker = await place.worker(slots=1)
    running = await worker.run("davis")
    unread = Unread(place.later(seconds=1), claimable=False)
    worker.worker.walk.backlog.expect(0, unread)
    place.later(seconds=1)
    await worker.looks_again()
    await place.add("elko")
    running.end()
    await worker.run("elko")


def test_what_waits_when_a_walk_ends_is_what_a_freed_slot_is_for(open_table: OpenTable) -> None:
    """Of two that are overdue in the same second, one became so while the other was read."""

    @with_workers
    async def story(place: Workplace, shards: int) -> None:
        place.clock.advance(0.05)
        await place.add(ids_of_shard(place.board, 1)[0])
        await add_later(place, ids_of_shard(place.board, 0)[0], 0.15)
        place.clock.advance(0.05)
        begun = place.clock.now()

        async def nothing() -> None:
            """The first shard takes no time."""

        async def slowly() -> None:
            backlog = place.workers[0].worker.walk.backlog
            await until(lambda: backlog.next_at(begun), "the first shard is read")
            place.clock.advance(0.2)

        place.table.script_reads(nothing, slowly)
        worker = await place.worker(slots=1)
        await until(lambda: worker.order, "a run")
        (first,) = worker.order
        (await worker.run(first)).end()
        await until(lambda: len(worker.order) == 2, "the other is run")

    story(open_table=open_table, shards=2)


@with_workers
async def test_what_is_read_after_a_lost_race_is_what_a_freed_slot_is_for(
    place: Workplace,
) -> None:
    await place.add("first", item_type="plain")
    claims = []
    for item_id in ("second", "third"):
        await place.add(item_id, every="1s", stale_after="60s")
        claims.append(await place.claimed(item_id, board=place.other, owner="another"))
    place.later(seconds=5)

    async def another_is_faster() -> None:
        await place.claimed("first", board=place.other, owner="another")
        for one in claims:
            await place.let_go(one, board=place.other)

    place.table.script(another_is_faster)
    worker = await place.worker(slots=1)
    await until(lambda: worker.order, "a run")
    (first,) = worker.order
    place.later(minutes=2)
    (await worker.run(first)).end()
    await until(lambda: set(worker.order) == {"second", "third"}, "both are run")


@with_workers
async def test_what_is_freed_and_not_run_is_looked_for_soon(place: Workplace) -> None:
    """A slot whose attempts are used up: the next one is due by now."""
    await place.add("davis", every="10s", stale_after="10s")
    await place.claimed("davis", board=place.other, owner="dead")
    for _ in range(3):
        place.later(seconds=11)
        assert await override(place.other, await place.lock(), owner="dead")
    place.later(seconds=11)
    worker = await place.worker()
    assert worker.order == []
    assert any(wish < 1 for wish in worker.wake.wishes)
    place.later(seconds=1)
    worker.wake.now()
    await worker.run("davis")


@with_workers
async def test_a_lock_that_cannot_be_taken_over_is_left_to_the_next_look(place: Workplace) -> None:
    async with beside_an_odd_lock(place):
        worker = await place.worker()
        await worker.looks_again()
        worker.wake.wishes.clear()
        before = len(place.table.batches)
        for _ in range(3):
            await worker.looks_again()
        assert len(place.table.batches) == before
        assert not any(wish < 1 for wish in worker.wake.wishes)


@with_workers
async def test_what_is_not_for_this_worker_is_nothing_that_others_took(place: Workplace) -> None:
    """Neither a type it does not know, nor a slot that is passed over."""
    await place.add("hourly", cron="0 * * * *", missed="none")
    worker = await place.worker()
    (await worker.run("hourly")).end()
    await place.ended("hourly")
    await add_later(place, "strange", 5, item_type="strange")
    await worker.walk()
    place.later(seconds=6)
    await worker.looks_again()
    assert worker.worker.walk.backlog._of[0].pause == 0
    place.later(hours=1, minutes=30)
    await worker.walk()
    assert len(worker.of(SlotSkipped)) == 1
    await worker.looks_again()
    assert worker.worker.walk.backlog._of[0].pause == 0


@pytest.mark.parametrize("slots", [1, 2])
def test_tokens_that_fit_no_item_block_nobody_however_many(
    open_table: OpenTable, slots: int
) -> None:
    @with_workers
    async def story(place: Workplace) -> None:
        doubles: list[str] = []
        for number in range(slots):
            await place.add(f"double-{number}", item_type="plain")
            token = await place.token(f"double-{number}")
            doubles.append(keys.next_key(token.ready, token.id))
            (row,) = await place.rows(doubles[-1])
            await place.claimed(token.id, board=place.other, owner="another")
            partition = place.other.partition(token.id)
            await place.other.table.commit(partition, [Insert(row.key, row.data)])
        place.later(seconds=1)
        await place.add("davis")
        worker = await place.worker(slots=slots)
        (await worker.run("davis")).end()
        assert await place.ended("davis") == [(1, "ok")]
        partition = place.other.partition("davis")
        await place.other.table.commit(partition, [Delete(key, ANY) for key in doubles])

    story(open_table=open_table)


@with_workers
async def test_a_row_of_the_history_that_cannot_be_read_ends_no_worker(place: Workplace) -> None:
    await place.add("davis", every="1h")
    worker = await place.worker(retention=Retention(runs=1))
    (await worker.run("davis")).end()
    await worker.tells(RunEnded)
    partition, key = place.other.partition("davis"), keys.run_key("davis", 1)
    await place.other.table.commit(partition, [Merge(key, {"outcome": "odd"}, ANY)])
    place.later(hours=1)
    await worker.walk()
    (await worker.run("davis", 1)).end()
    await worker.tells(RunEnded, 2)
    place.later(hours=1)
    await worker.walk()
    await worker.run("davis", 2)
    assert await place.other.run("davis", 1) is None, "it was pruned as any other"
