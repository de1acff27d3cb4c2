"""One partition of a store is in trouble, and the work in all others goes on as if it were not."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise

import pytest

from blackboard.assembly import WorkerSetup, assemble
from blackboard.board_worker import WorkerSettings
from blackboard.emitter import EventEmitter
from blackboard.events import BoardEvent, RunEnded, RunStarted, Walked
from blackboard.model import Mark, Outcome, Token
from blackboard.protocol import keys
from blackboard.protocol.additions import New, add
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import claim
from blackboard.protocol.edits import pause, resume
from blackboard.protocol.members import workers
from blackboard.settings import Settings
from blackboard.spec import Spec
from blackboard.table import Busy, Etag, Op, Row, TableError, Unavailable, Unknown
from blackboard.tables.memory import Contents, MemoryTable
from blackboard.worker import selection
from blackboard.worker.worker import Mode, Worker
from tests.support.boards import disagreements
from tests.support.clocks import START, ManualClock, SeededChance, TurnedWake
from tests.support.turns import settled
from tests.support.workers import HANDLERS, FakeRunner, board_on, ids_of_shard

SHARDS, PER_SHARD = 4, 4
EVERY, LEASE, CYCLE = 20.0, 10.0, 5.0
STEP = 0.25
LONGEST_HANG = 12.0
SICK = 0


@dataclass
class Trouble:
    """What requests to a partition meet with."""

    partition: str = ""
    """"": none is in trouble; `*`: all are."""
    batch: Callable[[], TableError] | None = None
    page: Callable[[], TableError] | None = None
    hangs: float = 0.0
    """Seconds that a request takes."""
    busy: float = 0.0
    """The part of all requests that the store has no time for."""
    unanswered: float = 0.0
    """The part of all batches that get no answer, and are not applied."""
    chance: SeededChance = field(default_factory=SeededChance)

    def is_of(self, partition: str) -> bool:
        return self.partition in {"*", partition}


class SickTable(MemoryTable):
    """A table one partition of which is in trouble."""

    def __init__(self, clock: ManualClock, contents: Contents, trouble: Trouble) -> None:
        super().__init__(clock, contents)
        self.clock, self.trouble = clock, trouble
        self.asked: list[tuple[float, str]] = []
        self.locks_asked: list[tuple[float, str]] = []

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        await self._meets(partition, self.trouble.batch)
        if self.trouble.chance.fraction() < self.trouble.unanswered:
            raise Unknown
        return await super().commit(partition, ops)

    async def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        if first == keys.LOCK:
            self.locks_asked.append((self.clock.monotonic(), partition))
        await self._meets(partition, self.trouble.page)
        async for row in super().scan(partition, first, last, limit):
            yield row

    async def _meets(self, partition: str, trouble: Callable[[], TableError] | None) -> None:
        self.asked.append((self.clock.monotonic(), partition))
        if self.trouble.chance.fraction() < self.trouble.busy:
            raise Busy(1.0)
        if self.trouble.is_of(partition):
            if self.trouble.hangs:
                await self.clock.sleep(self.trouble.hangs)
            if trouble is not None:
                raise trouble()


@dataclass(kw_only=True)
class Town:
    """A worker at a board of four shards."""

    clock: ManualClock
    contents: Contents
    trouble: Trouble
    board: BoardTable
    table: SickTable
    worker: Worker
    runner: FakeRunner
    task: "asyncio.Task[None]"
    told: list[BoardEvent] = field(default_factory=list)
    sick: set[int] = field(default_factory=set)
    """Shards that have been in trouble."""

    async def turn(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.clock.advance(STEP)
            await settled()
            assert not self.task.done()

    def ended(self) -> Counter[int]:
        """Runs that have ended well, by shard; counted from the last call. Nothing else happens but
        that what was claimed late, of a shard that has been sick, is put back.
        """
        found = [event for event in self.told if isinstance(event, RunEnded)]
        self.told.clear()
        ended: dict[str, Counter[int]] = {"ok": Counter(), "cancelled": Counter()}
        for event in found:
            ended[event.run.outcome][keys.shard_of(event.id, SHARDS)] += 1
        assert ended["cancelled"].keys() <= self.sick
        return ended["ok"]


Story = Callable[[Town], Awaitable[None]]


async def tell(
    story: Story, *, slots: int = 4, shards: int = SHARDS, limit: str | None = None
) -> None:
    clock, contents, trouble = ManualClock(), Contents(), Trouble()
    board = await board_on(MemoryTable(clock, contents), clock, Settings(), shards=shards)
    for number in range(shards):
        for item_id in ids_of_shard(board, number)[:PER_SHARD]:
            spec = Spec(every=f"{EVERY:g}s", stale_after=f"{LEASE:g}s", timeout=limit)
            await add(board, New(id=item_id, type="feed", spec=spec))
    table = SickTable(clock, contents, trouble)
    events, runner = EventEmitter("me"), FakeRunner(at_once=True)
    worker = assemble(
        await board_on(table, clock, Settings(), shards=shards, seed=2),
        WorkerSetup(
            settings=WorkerSettings(cycle=timedelta(seconds=CYCLE), slots=slots),
            events=events,
            inline=runner,
            process=runner,
        ),
        handlers=HANDLERS,
        wake=TurnedWake(clock, every=CYCLE),
    )
    task = asyncio.get_running_loop().create_task(worker.work(Mode.FOREVER))
    place = Town(
        clock=clock,
        contents=contents,
        trouble=trouble,
        board=board,
        table=table,
        worker=worker,
        runner=runner,
        task=task,
    )
    events.subscribe(place.told.append)
    try:
        await place.turn(2 * EVERY)
        place.ended()
        place.table.asked.clear()
        await story(place)
    finally:
        put(place, Trouble(), "")  # else its farewell would wait for a clock that stands still
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await disagreements(board) == []


TROUBLES = {
    "busy": Trouble(batch=lambda: Busy(0.0), page=lambda: Busy(0.0)),
    "busy for an hour": Trouble(batch=lambda: Busy(3600.0), page=lambda: Busy(3600.0)),
    "away": Trouble(batch=Unavailable, page=Unavailable),
    "silent": Trouble(batch=Unknown, page=Unavailable),
    "read only": Trouble(batch=Unknown),
    "busy for writers": Trouble(batch=lambda: Busy(1.0)),
    "slow": Trouble(hangs=LONGEST_HANG),
    "slow and away": Trouble(hangs=LONGEST_HANG, batch=Unknown, page=Unavailable),
}


def put(place: Town, trouble: Trouble, partition: str) -> None:
    place.trouble.partition = partition
    shards = range(place.board.shards)
    place.sick |= {number for number in shards if place.board.shard(number) == partition}
    place.trouble.batch, place.trouble.page = trouble.batch, trouble.page
    place.trouble.hangs = trouble.hangs


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=list(TROUBLES))
def test_three_shards_go_on_while_the_fourth_is_in_trouble(trouble: Trouble, slots: int) -> None:
    """Each of their items runs as often as it is due. The sick one is asked about once a second,
    and is at work again soon after.
    """
    rounds = 6

    async def story(place: Town) -> None:
        put(place, trouble, place.board.shard(SICK))
        await place.turn(rounds * EVERY)
        ended = place.ended()
        asked = Counter(partition for _, partition in place.table.asked)
        for number in range(SHARDS):
            if number != SICK:
                assert ended[number] >= (rounds - 1) * PER_SHARD, ended
        assert asked[place.board.shard(SICK)] <= 2 * rounds * EVERY
        found = await workers(place.board)
        assert [one.lost for one in found] == [False]
        put(place, Trouble(), "")
        await place.turn(2 * EVERY + 2 * LONGEST_HANG)
        place.ended()
        await place.turn(2 * EVERY)
        ended = place.ended()
        assert min(ended[number] for number in range(SHARDS)) >= PER_SHARD, ended

    asyncio.run(tell(story, slots=slots))


@pytest.mark.parametrize("slots", [1, 4, 16])
@pytest.mark.parametrize("hangs", [0.5, 1.0, 2.0])
def test_where_all_shards_are_slow_none_is_late_and_nothing_is_put_back(
    hangs: float, slots: int
) -> None:
    rounds = 5

    async def story(place: Town) -> None:
        put(place, Trouble(hangs=hangs), "*")
        await place.turn(rounds * EVERY)
        ended = place.ended()
        assert sum(ended.values()) > 0
        if slots >= SHARDS * PER_SHARD:
            assert min(ended[number] for number in range(SHARDS)) >= (rounds - 1) * PER_SHARD

    asyncio.run(tell(story, slots=slots))


@pytest.mark.parametrize("slow", ["*", "one"])
@pytest.mark.parametrize("mode", [Mode.ONCE, Mode.UNTIL_IDLE])
def test_a_worker_that_is_to_end_does_although_a_shard_is_slow(mode: Mode, slow: str) -> None:
    """What it takes in the slow shard is run, too; and that is not read over and over."""

    async def story() -> None:
        clock, contents, trouble = ManualClock(), Contents(), Trouble(hangs=0.6)
        board = await board_on(MemoryTable(clock, contents), clock, Settings(), shards=SHARDS)
        items = [ids_of_shard(board, number)[0] for number in range(SHARDS)]
        for item_id in items:
            await add(board, New(id=item_id, type="feed", spec=Spec(every="1h")))
        (dead,) = await claimed_by_another(board, SICK)
        await pause(board, dead, MARK)
        clock.advance(10)
        table, runner = SickTable(clock, contents, trouble), FakeRunner(at_once=True)
        events = EventEmitter("me")
        told: list[BoardEvent] = []
        events.subscribe(told.append)
        another = await board_on(table, clock, Settings(), shards=SHARDS, seed=2)
        trouble.partition = "*" if slow == "*" else board.shard(SICK)
        worker = assemble(
            another,
            WorkerSetup(
                settings=WorkerSettings(cycle=timedelta(seconds=60), slots=4),
                events=events,
                inline=runner,
                process=runner,
            ),
            handlers=HANDLERS,
            wake=TurnedWake(clock, every=60),
        )
        task = asyncio.get_running_loop().create_task(worker.work(mode))
        for _ in range(round(20 / STEP)):
            clock.advance(STEP)
            await settled()
        assert task.done()
        await task
        outcomes = [event.run.outcome for event in told if isinstance(event, RunEnded)]
        assert outcomes == ["ok"] * len(items)
        walks = [event for event in told if isinstance(event, Walked)]
        assert [lock.id for walk in walks for lock in walk.freed] == [dead]
        assert sum(walk.claims for walk in walks) == len(items)
        asked = Counter(partition for _, partition in table.asked)
        assert asked[board.shard(SICK)] <= 12

    asyncio.run(story())


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=list(TROUBLES))
def test_trouble_of_the_workers_rows_is_no_trouble_of_the_shards(trouble: Trouble) -> None:
    async def story(place: Town) -> None:
        put(place, trouble, keys.workers_partition("town"))
        await place.turn(5 * EVERY)
        ended = place.ended()
        assert min(ended[number] for number in range(SHARDS)) >= 4 * PER_SHARD

    asyncio.run(tell(story))


@pytest.mark.parametrize("name", ["busy", "away", "busy for an hour"])
def test_an_account_that_is_away_is_asked_about_once_a_second_whatever_it_holds(name: str) -> None:
    async def story(place: Town) -> None:
        put(place, TROUBLES[name], "*")
        await place.turn(70)  # the last partition has failed, too
        place.table.asked.clear()
        await place.turn(100)
        assert 5 <= len(place.table.asked) <= 102
        put(place, Trouble(), "")
        await place.turn(30)
        place.ended()
        await place.turn(2 * EVERY)
        ended = place.ended()
        assert min(ended[number] for number in range(SHARDS)) >= PER_SHARD

    asyncio.run(tell(story))


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=list(TROUBLES))
def test_what_is_held_in_other_shards_is_renewed_and_what_is_stale_there_is_overridden(
    trouble: Trouble,
) -> None:
    async def story(place: Town) -> None:
        place.runner.at_once = False
        await place.turn(EVERY + CYCLE)  # each slot has a run that goes on
        held = {one.claim.id: one.shard for one in place.worker.holdings}
        assert len(held) == 4
        dead = await claimed_by_another(place.board)
        put(place, trouble, place.board.shard(SICK))
        await place.turn(6 * LEASE)  # many leases, and no time limit
        kept = [one for one in place.worker.holdings if not one.lost]
        assert {item for item, shard in held.items() if shard != SICK} <= {
            one.claim.id for one in kept
        }
        for run in place.runner.all():
            if not run.ended.done():
                run.end()
        place.runner.at_once = True
        await place.turn(2 * CYCLE)
        for item_id in dead:
            item = await place.board.item(item_id)
            assert item is not None
            assert (item.outcome, item.fence >= 2) == (Outcome.OK, True)
        put(place, Trouble(), "")
        await place.turn(4 * EVERY)

    asyncio.run(tell(story, limit="1h"))


async def claimed_by_another(board: BoardTable, *numbers: int) -> list[str]:
    """New items in some shards, by default those that are well, whose holder is dead."""
    dead: list[str] = []
    for number in numbers or range(1, SHARDS):
        item_id = ids_of_shard(board, number)[PER_SHARD]
        spec = Spec(every="1h", stale_after="3s")
        later = board.clock.now() - timedelta(hours=1)
        await add(board, New(id=item_id, type="feed", spec=spec, first=later))
        async for token in board.walk(number, until=board.clock.now()):
            if isinstance(token, Token) and token.id == item_id:
                await claim(board, [token], owner="dead")
                dead.append(item_id)
    return dead


def test_the_slot_of_each_run_that_ends_in_a_stuck_shard_is_filled_at_once() -> None:
    async def story(place: Town) -> None:
        others = [
            item_id
            for number in range(1, SHARDS)
            for item_id in ids_of_shard(place.board, number)[:PER_SHARD]
        ]
        for item_id in others:
            await pause(place.board, item_id, MARK)
        place.runner.at_once = False
        await place.turn(EVERY + CYCLE)
        first, second = place.worker.holdings
        assert {first.shard, second.shard} == {SICK}
        for item_id in others:
            await resume(place.board, item_id, MARK)
        put(place, TROUBLES["slow"], place.board.shard(SICK))
        await place.turn(CYCLE + 1.0)

        def run_elsewhere() -> int:
            return sum(one.shard != SICK for one in place.worker.holdings)

        runs = {one.call.item.id: one for one in place.runner.all() if not one.ended.done()}
        runs[first.claim.id].end()
        await place.turn(1.5)
        assert run_elsewhere() == 1
        runs[second.claim.id].end()
        await place.turn(0.5)
        assert run_elsewhere() == 2
        put(place, Trouble(), "")
        for one in place.runner.all():
            if not one.ended.done():
                one.end()

    asyncio.run(tell(story, slots=2, limit="1h"))


MARK = Mark(by="ann", at=START)


@pytest.mark.parametrize("hangs", [0.6, 2.0, LONGEST_HANG])
def test_what_is_taken_and_freed_in_a_shard_that_is_late_is_reported_once(hangs: float) -> None:
    async def story(place: Town) -> None:
        (dead,) = await claimed_by_another(place.board, SICK)
        await pause(place.board, dead, MARK)
        place.told.clear()
        put(place, Trouble(hangs=hangs), place.board.shard(SICK))
        await place.turn(8 * EVERY)
        put(place, Trouble(), "")
        await place.turn(EVERY)
        walks = [event for event in place.told if isinstance(event, Walked)]
        begun = [event for event in place.told if isinstance(event, RunStarted)]
        assert [lock.id for walk in walks for lock in walk.freed] == [dead]
        assert sum(walk.claims for walk in walks) == len(begun)

    asyncio.run(tell(story))


@pytest.mark.parametrize("hangs", [0.7, 1.6, 2.0])
def test_the_locks_of_a_slow_shard_are_read_although_it_has_a_long_backlog(
    hangs: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is late when walks begin, because it is being read on."""
    monkeypatch.setattr(selection, "AHEAD", 1)

    async def story(place: Town) -> None:
        for item_id in ids_of_shard(place.board, SICK, among=1600)[PER_SHARD:]:
            await add(place.board, New(id=item_id, type="plain", spec=Spec(every="1h")))
        put(place, Trouble(hangs=hangs), place.board.shard(SICK))
        place.table.locks_asked.clear()
        begun = place.clock.monotonic()
        await place.turn(12 * CYCLE)
        asked = [at for at, partition in place.table.locks_asked if place.trouble.is_of(partition)]
        moments = [begun, *asked, place.clock.monotonic()]
        assert max(later - sooner for sooner, later in pairwise(moments)) <= 2 * CYCLE + hangs
        put(place, Trouble(), "")
        await place.turn(EVERY)

    asyncio.run(tell(story))


@pytest.mark.parametrize("shards", [1, SHARDS])
def test_what_has_ended_is_renewed_until_a_busy_store_has_written_it(shards: int) -> None:
    """Three of ten requests are refused, and leases are short: no lock goes stale, so that another
    worker would run an ended run again.
    """

    async def story(place: Town) -> None:
        place.trouble.busy, place.trouble.chance = 0.3, SeededChance(2)
        stale, seen = 0, 0
        for _ in range(round(30 * EVERY)):
            await place.turn(1)
            locks = [lock async for lock in place.board.locks()]
            seen += len(locks)
            stale += sum(lock.age > lock.stale_after for lock in locks)
        assert seen > 50
        assert stale == 0
        place.trouble.busy = 0.0
        await place.turn(2 * EVERY)

    asyncio.run(tell(story, shards=shards))


def test_a_minute_in_which_most_batches_get_no_answer_fails_no_run() -> None:
    """What each handler returned is recorded: `ended` allows no run that failed."""

    async def story(place: Town) -> None:
        place.sick = set(range(SHARDS))  # what is claimed late is put back
        place.trouble.unanswered = 0.8
        await place.turn(60)
        place.trouble.unanswered = 0.0
        await place.turn(EVERY)
        assert set(place.ended()) == set(range(SHARDS))

    asyncio.run(tell(story))
