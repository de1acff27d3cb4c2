"""A board on which some rows are harmed while a worker is at work, and what must hold nevertheless:
no process crashes, every healthy item keeps running, and an item that stops is reported.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from blackboard.display.columns import ShownTimes, item_cells, run_cells, summary, worker_cells
from blackboard.doctor import DoctorReport, Examination, examine
from blackboard.errors import BlackboardError
from blackboard.events import ItemLeftAlone
from blackboard.model import Item, Outcome, State, Token
from blackboard.protocol import keys
from blackboard.protocol.additions import New, add
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim, claim
from blackboard.protocol.edits import pause, remove, run_now
from blackboard.protocol.members import workers
from blackboard.protocol.status import read_status
from blackboard.records import as_json, item_record, run_record, worker_record
from blackboard.settings import Settings
from blackboard.spec import Labels, Spec
from blackboard.table import Delete, Insert, Table
from tests.proof.damage.mutations import ENDED, Kept, Mutation, Mutator
from tests.support.boards import disagreeing
from tests.support.clocks import ManualClock
from tests.support.stores import OpenTable
from tests.support.workers import HANDLERS, FaultyShards, WorkerScene, Workplace, board_on, until

SHARDS = 2
HEALTHY = 12
ROUNDS = 2
LOOKS = 3
"""Soon after each walk: the owners that locks name are the first to take some tokens, and dead."""
EVERY = timedelta(minutes=10)
LATER = timedelta(minutes=11)
SPEC = Spec(every="10m", stale_after="2m", retries=1, backoff="1s", params={"of": [1, 2]})
CRON = msgspec.structs.replace(SPEC, every=None, cron="*/10 * * * *")
OURS, DEAD = "me", "dead:1:a"
Write = Callable[[Table, Mutation], Awaitable[None]]
"""Puts a mutated row where it belongs, past the protocol. Raises ValueError for what the store
cannot hold.
"""


@dataclass(kw_only=True)
class Harmed:
    """A board, its worker, and what was done to it."""

    place: Workplace
    mutator: Mutator
    write: Write
    healthy: list[str] = field(default_factory=list)
    victims: list[str] = field(default_factory=list)
    done: list[Mutation] = field(default_factory=list)
    told: set[str] = field(default_factory=set)
    """Subjects of what the doctor found, and ids that the worker left alone."""
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def board(self) -> BoardTable:
        return self.place.other

    @property
    def worker(self) -> WorkerScene:
        return self.place.workers[0]

    # ---- the board before

    async def populate(self, victims: int) -> None:
        """Healthy items, and victims in every state that an item can be in, with a history."""
        lives = ("waits", "again", "paused", "drains", "gone", "dead", "fails", "cron", "plain")
        self.healthy = [f"healthy-{number}" for number in range(HEALTHY)]
        self.victims = [f"{lives[n % len(lives)]}-{n}" for n in range(victims)]
        for name in self.healthy + self.victims:
            await self._add(name)
        tokens = {token.id: token for token in await self.place.tokens()}
        for name in self.victims:
            await self._live(tokens[name], name.partition("-")[0])

    async def _add(self, name: str) -> None:
        spec = CRON if name.startswith("cron") else SPEC
        item_type = "plain" if name.startswith("plain") else "feed"
        await add(self.board, New(id=name, type=item_type, spec=spec))

    async def _live(self, token: Token, life: str) -> None:
        place, board, name = self.place, self.board, token.id
        match life:
            case "waits" | "cron":
                await place.let_go(await self._claimed(token), result=[1], board=board)
            case "fails":
                await place.let_go(await self._claimed(token), "failed", error="boom", board=board)
            case "dead":
                await self._claimed(token)
            case "again":
                await self._claimed(token)
                await run_now(board, name, once={"more": True})
            case "drains":
                await self._claimed(token)
                await pause(board, name, place.mark("for now"))
            case "paused":
                await pause(board, name, place.mark())
            case "gone":
                await remove(board, name)

    async def _claimed(self, token: Token) -> Claim:
        """By a worker that is not heard of any more."""
        (only,) = (await claim(self.board, [token], owner=DEAD)).claims
        return only

    # ---- the harm

    async def kept(self) -> list[Kept]:
        """All rows that may come to harm."""
        found = [
            Kept(partition=partition, key=row.key, data=row.data)
            for partition in self.mutator.partitions
            async for row in self.place.table.table.scan(partition)
        ]
        return [row for row in found if row.id not in self.healthy]

    async def harm(self, count: int, chance: random.Random) -> None:
        """So many rows, each once, the families as evenly as there are rows."""
        rows = await self.kept()
        number = Counter(row.family for row in rows)
        weights = [1 / number[row.family] for row in rows]
        tries = 0
        while len(self.done) < count and rows:
            tries += 1
            assert tries < 100 * count, "the store takes no mutation"
            (place,) = chance.choices(range(len(rows)), weights)
            mutation = self.mutator.mutated(rows[place])
            try:
                await self.write(self.place.table.table, mutation)
            except ValueError:
                continue
            self.done.append(mutation)
            del rows[place], weights[place]

    # ---- what happens then

    async def work(self) -> None:
        """Some cycles of a worker, and whoever looks at the board."""
        for _ in range(ROUNDS):
            self.place.clock.advance(LATER.total_seconds())
            await self.walk()
        await self.look()
        await self.check(repair=False)
        await self.check(repair=True)
        self.place.clock.advance(LATER.total_seconds())
        await self.walk()
        await self.look()
        await self.check(repair=False)

    async def walk(self) -> None:
        """What was held ends, another walk is made, and all that is no "plain" item ends."""
        for run in self.worker.process.all():
            if not run.ended.done():
                run.end()
        await self.worker.walk()
        await self.settle_again()
        self.told |= {one.id for one in self.worker.of(ItemLeftAlone)}

    async def settle_again(self) -> None:
        await self.settle()
        for _ in range(LOOKS):
            self.place.clock.advance(1.0)
            await self.worker.looks_again()
            await self.settle()

    async def settle(self) -> None:
        """What runs ends, and so do the walks that the worker makes of its own accord: were the
        clock advanced in one of them, a shard would count as slow, and be claimed from later.
        """
        worker = self.worker

        def is_settled() -> bool:
            for run in worker.inline.all():
                if not run.ended.done():
                    run.end()
            held = worker.worker.holdings
            return worker.is_idle() and all(one.claim.type == "plain" for one in held)

        await until(lambda: worker.task.done() or is_settled(), "what runs is let go")
        if worker.task.done():
            await worker.task
            raise AssertionError("the worker ended")

    async def look(self) -> None:
        """What `show`, `log` and `workers` do."""
        found = await read_status(self.board)
        for one in found.statuses:
            assert as_json(item_record(one, Labels()))["id"] == one.item.id
            assert item_cells(one, ShownTimes(found.now))
        assert summary(found.statuses, total=len(found.statuses), now=found.now)
        assert {one.item.id for one in found.statuses} >= set(self.healthy)
        for name in self.healthy + self.victims:
            with suppress(BlackboardError):
                async for run in self.board.runs(name):
                    assert as_json(run_record(run))["id"] == run.id
                    assert run_cells(run, ShownTimes(found.now, absolute=True))
        for sighting in await workers(self.board):
            assert as_json(worker_record(sighting))
            assert worker_cells(sighting, ShownTimes(found.now))

    async def check(self, *, repair: bool) -> DoctorReport:
        report = await examine(self.board, Examination(repair=repair, types=set(HANDLERS)))
        self.told |= {one.subject for one in report.findings}
        self.outcomes.update(f"repaired {one.code}" for one in report.findings if one.repaired)
        return report

    # ---- what must hold

    async def problems(self) -> list[str]:
        found = [problem async for problem in self._unhealthy()]
        return found + [problem async for problem in self._silent()]

    async def _unhealthy(self) -> AsyncIterator[str]:
        for name in self.healthy:
            runs = [run async for run in self.board.runs(name)][::-1]
            fences = [(run.fence, run.outcome) for run in runs]
            wanted = [(fence, Outcome.OK) for fence in range(1, ROUNDS + 3)]
            if fences != wanted:
                yield f"{name} should have run {len(wanted)} times, and has {fences}"
        for number in range(self.board.shards):
            rows = [row async for row in self.board.table.scan(self.board.shard(number))]
            mine = {row.key: row for row in rows if row.data.get("item") in self.healthy}
            untouched = {key: row for key, row in mine.items() if not self._was_harmed(key)}
            for problem in disagreeing(untouched):
                yield problem

    def _was_harmed(self, key: str) -> bool:
        return any(key == one.after.key for one in self.done)

    async def _silent(self) -> AsyncIterator[str]:
        """Items that do not run any more, and nobody says so."""
        now = await self.board.table.now()
        for mutation in self.done:
            name = mutation.before.id
            if mutation.before.family == "worker":
                continue
            try:
                item = await self.board.item(name)
            except BlackboardError:
                item, stopped = None, "its item cannot be read"
            else:
                stopped = _stopped(item, now - EVERY - LATER)
            self.outcomes[stopped or "goes on"] += 1
            if stopped and mutation.what == ENDED and self._is_only(mutation):
                yield f"{name}: {stopped}, though nothing stands in its way: {mutation}"
            if stopped and not self._is_told(mutation, item) and not self._is_beyond(name):
                yield f"{name}: {stopped}, and nobody tells: {mutation}"

    def _is_only(self, mutation: Mutation) -> bool:
        """Whether nothing else was done to its item."""
        return [one for one in self.done if one.before.id == mutation.before.id] == [mutation]

    def _is_beyond(self, name: str) -> bool:
        """Whether nobody could tell: its row was taken away and nothing else was left of it."""
        mine = [one for one in self.done if one.before.id == name]
        return any(
            (one.before.family == "item" and one.after.key != one.before.key)
            or (one.before.family == "item" and one.after.partition != one.before.partition)
            for one in mine
        )

    def _is_told(self, mutation: Mutation, item: Item | None) -> bool:
        name = mutation.before.id
        names = {name, keys.item_key(name), mutation.after.key, item.type if item else name}
        return bool(self.told & names)


def _stopped(item: Item | None, since: datetime) -> str:
    """Why an item that was active runs no more, if so."""
    if item is None:
        return "its item is gone"
    if item.state is not State.ACTIVE:
        return ""  # a person said so, or a mutation that nobody can tell from a person
    if item.ready < since and not item.running:
        return "it waits, and is not taken"
    if item.running and (item.start is None or item.start < since):
        return "it runs, and is not overridden"
    return ""


async def harmed(
    open_table: OpenTable, seed: int, *, rows: int, write: Write, wild: bool = False
) -> Harmed:
    """A board with so many harmed rows after some cycles. Whatever fails, the rows are told."""
    clock, settings = ManualClock(), Settings()
    table, another = await open_table(clock), await open_table(clock)
    faulty = FaultyShards(table)
    place = Workplace(
        table=faulty,
        clock=clock,
        board=await board_on(faulty, clock, settings, seed=1, shards=SHARDS),
        other=await board_on(another, clock, settings, seed=2, shards=SHARDS),
        open_table=open_table,
        settings=settings,
    )
    partitions = [place.other.shard(number) for number in range(SHARDS)]
    partitions.append(keys.workers_partition(place.other.name))
    mutator = Mutator(seed, partitions=partitions, owners=(OURS, DEAD), wild=wild)
    made = Harmed(place=place, mutator=mutator, write=write)
    try:
        await made.populate(rows)
        await place.worker(slots=1000)
        await made.settle_again()
        await made.harm(rows, random.Random(seed))
        await made.work()
        problems = await made.problems()
        assert problems == [], "\n".join(problems)
        for one in place.workers:
            await one.stop()
    except BaseException as error:
        error.add_note(f"seed {seed}:\n" + "\n".join(map(str, made.done)))
        raise
    finally:
        for one in place.workers:
            one.task.cancel()
        await asyncio.gather(*(one.task for one in place.workers), return_exceptions=True)
        await table.close()
        await another.close()
    return made


async def written(table: Table, mutation: Mutation) -> None:
    """By the store itself, as another program would."""
    before, after = mutation.before, mutation.after
    try:
        there = {row.key async for row in table.scan(after.partition)}
        if not mutation.stays:
            await table.commit(before.partition, [Delete(before.key, "*")])
        if after.key in there and (after.partition, after.key) != (before.partition, before.key):
            await table.commit(after.partition, [Delete(after.key, "*")])
        await table.commit(after.partition, [Insert(after.key, after.data)])
    except Exception as refused:
        raise ValueError(str(refused)) from refused
