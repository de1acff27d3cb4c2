"""A worker's part in one group of partitions: it takes its share, runs a pump for each, lets go.

A group is a board of its own, `town.clicks` beside `town`, and a partition is an item whose run
does not end. So a partition that is held is a lock, one that is not is a waiting token, and to
take, renew, override, save and let go are the batches that every item has. `rules/shares.py` says
what to take and what to let go; here that is done, round by round.

To hand over, a pump is asked to end (`ctx.stopping`). When it has returned, or when its time for
that is up, its partition is released and due at once: only then does another worker claim it. A
worker that ends says so in its row, waits a round, so that the others look each second by then, and
lets everything go.
"""

import asyncio
import math
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from inspect import isawaitable
from typing import Any

from blackboard.errors import BadInput
from blackboard.events import (
    Events,
    GroupTrouble,
    ItemLeftAlone,
    LockAdopted,
    LockOverridden,
    WorkerStopping,
)
from blackboard.handlers import Handler, Pump, check_partitions
from blackboard.model import VERSION, Ended, Lock, Member, Outcome, Token, replace
from blackboard.phrases import plural
from blackboard.protocol.claims import adopt, claim, claims_at_once, override, trusted
from blackboard.protocol.edits import ensure
from blackboard.protocol.keys import group_key, meta_partition
from blackboard.protocol.reading import BoardTable
from blackboard.rules.breaker import REFUSED
from blackboard.rules.due import Move, decide_lock, is_stale
from blackboard.rules.shares import (
    CATCHING_UP,
    GATHERING,
    HURRY,
    LATE,
    Picture,
    counting,
    decide,
    youngest,
)
from blackboard.table import (
    ANY,
    Busy,
    Conflict,
    Insert,
    Merge,
    TableError,
    Unavailable,
    Unknown,
    Value,
)
from blackboard.worker.heartbeat import Heartbeat
from blackboard.worker.membership import Sighting, announce, forget, workers
from blackboard.worker.release_queue import Releases
from blackboard.worker.running import Holding, Holdings, Latest, Runs, Taken

ROUND = 1 / 3
"""Of a lease, from one look at the group to the next."""
SHORTEST_ROUND = 1.0
"""Seconds."""
NAMED_EVERY = 60.0
"""Seconds between two calls of a function that names the partitions."""
LAST_RELEASES = 10.0
"""Seconds for releasing what was stopped, before the worker ends all the same."""
MOST_PUMPS = 1_000_000
"""In one worker: as many as fall to it."""
TWICE = 0.5
"""Seconds, at the least, between the first two announcements of a worker."""
UNASKED = "it returned, and was not asked to end (a pump goes on until ctx.stopping is true)"
SHARED = "let go for another worker"
ENDING = "the worker is stopping"
_ALL = datetime(9999, 1, 1, tzinfo=UTC)
"""After every token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What a worker reads in a round."""

    now: datetime
    locks: Sequence[Lock]
    tokens: Sequence[Token]
    workers: Sequence[Sighting]


@dataclass(slots=True, kw_only=True)
class GroupWorker:
    """Serves one group, beside the rest of a worker. `work` is called once."""

    board: BoardTable
    """The board of the group."""
    parent: str
    """The name of the board that it belongs to."""
    handler: Handler
    member: Member
    """The worker's row on the group's board."""
    events: Events
    holdings: Holdings
    heartbeat: Heartbeat
    releases: Releases
    runs: Runs
    _group: asyncio.TaskGroup = field(init=False)
    _beside: dict[asyncio.Task[None], None] = field(default_factory=dict)
    """What is cancelled at the end, in the order it was begun."""
    _left_alone: Latest = field(default_factory=lambda: Latest(MOST_PUMPS))
    """Partitions whose settings cannot be computed: each is reported once."""
    _asked_to_stop: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the worker is asked to stop, or a run was released."""
    _begun: float = 0.0
    _named: float = 0.0
    """When the names of the partitions were last asked for."""
    _announced: float = -math.inf
    _looked: float = math.inf
    """When it last saw the group, in monotonic seconds."""
    _late_until: float = -math.inf
    _short_since: float | None = None
    """Since when it holds less than its share."""
    _left: frozenset[str] = frozenset()
    """The partitions without an owner at the last look."""
    _others: bool = False
    """Whether other workers are there to take what it lets go."""

    def __post_init__(self) -> None:
        self.runs.ended = self._ended

    @property
    def pump(self) -> Pump:
        assert self.handler.pump is not None
        return self.handler.pump

    @property
    def _lease(self) -> float:
        """Seconds: that of the pump, where `[types]` says nothing else."""
        said = self.board.resolve(self.handler.type, "{}").stale_after
        return (said or self.pump.lease).total_seconds()

    @property
    def _round(self) -> float:
        return max(self._lease * ROUND, SHORTEST_ROUND)

    @property
    def _stopping(self) -> bool:
        return self._asked_to_stop > 0

    def stop(self) -> None:
        """Asked once: let everything go, when the others have seen it coming. Asked again: now."""
        self._asked_to_stop += 1
        self._changed.set()
        if len(self.holdings):
            held = plural(len(self.holdings), "partition")
            self.events.emit(WorkerStopping, message=f"lets {held} of {self.handler.type} go")

    async def work(self) -> None:
        """Serve the group until `stop` is called."""
        self._begun = self.board.clock.monotonic()
        try:
            async with asyncio.TaskGroup() as self._group:
                self.runs.group = self._group
                work = (self.heartbeat.run(), self._release(), self.releases.keep_pruning(0))
                for one in work:
                    self._start_beside(one)
                if await self._prepared():
                    await self._rounds()
                    await self._let_all_go()
                await self.releases.pruned()
                for task in tuple(self._beside):
                    task.cancel()
        finally:
            await self.runs.calls.close()

    def _start_beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._group.create_task(work)
        self._beside[task] = None
        task.add_done_callback(lambda done: self._beside.pop(done, None))

    # ---- what there is to share

    async def _prepared(self) -> bool:
        """Make the group's board and its partitions where they are not there. False: the worker is
        to stop before that could be done.
        """
        while not self._stopping:
            try:
                await self._make(await self._names())
            except TableError as trouble:
                await self._after(trouble)
            else:
                return True
        return False

    async def _names(self) -> tuple[str, ...]:
        """As declared, or as the pump's function names them. Raises BadInput for what it gives;
        what it raises itself.
        """
        declared, self._named = self.pump.partitions, self.board.clock.monotonic()
        if isinstance(declared, tuple):
            return declared
        found = declared(self.runs.calls.settings.get(self.handler.type, {}))
        if isawaitable(found):
            found = await found
        return check_partitions(f"pump {self.handler.type!r}", found)

    async def _name_again(self) -> None:
        """Add the partitions that came since. A pump's function may fail: the others go on."""
        is_fixed = isinstance(self.pump.partitions, tuple)
        if is_fixed or self.board.clock.monotonic() < self._named + NAMED_EVERY:
            return
        try:
            names = await self._names()
        except Exception as problem:  # noqa: BLE001 - it is the pump's own
            what = f"the partitions of {self.handler.type} cannot be named: {problem!r}"
            self.events.emit(GroupTrouble, message=what)
        else:
            await self._make(names)

    async def _make(self, names: Sequence[str]) -> None:
        board = self.board
        await BoardTable.create(
            board.table,
            name=board.name,
            shards=1,
            clock=board.clock,
            chance=board.chance,
            resolve=board.resolve,
        )
        about: dict[str, Value] = {
            "version": VERSION,
            "kind": "pump",
            "partitions": len(names),
            "lease": self._lease,
        }
        key = group_key(self.handler.type)
        for write in (Insert(key, about), Merge(key, about, ANY)):
            with suppress(Conflict, Unknown):
                await board.table.commit(meta_partition(self.parent), [write])
                break
        await ensure(board, names, self.handler.type)

    # ---- rounds

    async def _rounds(self) -> None:
        while not self._stopping:
            try:
                pause = await self._look_and_act()
            except TableError as trouble:
                await self._after(trouble)
            else:
                await self._wait(pause)

    async def _look_and_act(self) -> float:
        """One look, and what follows of it. Returns the seconds until the next one."""
        await self._announce()
        await self._name_again()
        look = await self._look()
        now = self.board.clock.monotonic()
        if now - self._looked > LATE * self._round:
            self._late_until = now + CATCHING_UP * self._round
        self._looked = now
        await self._see_to_own(look.locks)
        picture = self._picture(look)
        self._others = len(picture.workers) > 1
        if not picture.held and not picture.stale and now < self._begun + GATHERING:
            return self._begun + GATHERING - now
        balance = self.pump.balance
        me = self.member.owner
        decision = decide(
            picture, me, balance=balance, late=now < self._late_until, left=self._left
        )
        self._left = frozenset({*picture.free, *picture.stale} - {*decision.take})
        await self._take(look, decision.take)
        self._let_go(decision.let_go)
        return self._pause(decision.again, now)

    def _pause(self, again: float | None, now: float) -> float:
        """A worker hurries for a lease at the most: what it lacks may not be there to be had."""
        if again != HURRY:
            self._short_since = None
            return self._round if again is None else min(again, self._round)
        if self._short_since is None:
            self._short_since = now
        return HURRY if now < self._short_since + self._lease else self._round

    async def _look(self) -> _Look:
        """Workers first: one that has left deletes its row when its locks are gone."""
        there = await workers(self.board)
        found = [
            one async for one in self.board.walk(0, until=_ALL) if one.type == self.handler.type
        ]
        return _Look(
            locks=[one for one in found if isinstance(one, Lock)],
            tokens=[one for one in found if isinstance(one, Token)],
            workers=there,
            now=await self.board.table.now(),
        )

    def _picture(self, look: _Look) -> Picture:
        resolution = self.board.table.resolution
        stale = {one.id: one.owner for one in look.locks if is_stale(one, resolution=resolution)}
        held = {one.id: one.owner for one in look.locks if one.id not in stale}
        live = [one for one in look.workers if one.age <= self._lease + resolution]
        return Picture(
            held=held,
            stale=stale,
            free=[one.id for one in look.tokens if one.ready <= look.now],
            waiting=[one.id for one in look.tokens if one.ready > look.now],
            workers=counting(
                {one.member.owner: _announced_twice(one.member) for one in live},
                owners=set(held.values()),
                leaving={one.member.owner for one in look.workers if not one.member.slots},
                me=self.member.owner,
                begins=not any(
                    (look.now - one.since).total_seconds() > self._round
                    for one in look.locks
                    if one.id in held
                ),
            ),
        )

    async def _see_to_own(self, locks: Sequence[Lock]) -> None:
        """Adopt locks of this worker that none of its runs has, and find out what became of runs
        whose lock is gone.
        """
        nonces = {one.nonce for one in locks}
        for held in self.holdings:
            if held.claim.nonce not in nonces and not held.ended:
                self.heartbeat.ask(held)
        in_flight = self.holdings.nonces | self.board.in_flight
        for lock in locks:
            move = decide_lock(
                lock,
                owner=self.member.owner,
                types=(),
                in_flight=in_flight,
                resolution=self.board.table.resolution,
                given_up=self.holdings.given_up,
            )
            if move is Move.ADOPT and (taken := await self._usable(lock, adopt(self.board, lock))):
                self.events.emit_of(lock, LockAdopted)
                await self._start([taken])

    # ---- taking

    async def _take(self, look: _Look, names: Collection[str]) -> None:
        tokens = [one for one in look.tokens if one.id in names]
        most = claims_at_once(self.board)
        work = [self._claim(tokens[at : at + most]) for at in range(0, len(tokens), most)]
        work += [self._override(one) for one in look.locks if one.id in names]
        for problem in await asyncio.gather(*work, return_exceptions=True):
            if problem is not None:
                raise problem

    async def _claim(self, tokens: Sequence[Token]) -> None:
        """Claim them in one batch. When another worker was faster at one, the next look deals them
        anew; one that does not fit its item is left out.
        """
        left = [one for one in tokens if self._settled(one)]
        while left:
            settings = [self.board.resolve(one.type, one.spec) for one in left]
            answer = await claim(self.board, left, owner=self.member.owner, settings=settings)
            if answer.broken is None:
                claims = answer.claims
                await self._start(
                    [Taken(one, self.board.resolve(one.type, one.spec)) for one in claims]
                )
                return
            left = [one for one in left if one is not answer.broken]

    async def _override(self, lock: Lock) -> None:
        taken = await self._usable(lock, override(self.board, lock, owner=self.member.owner))
        if taken is not None:
            self.events.emit_of(lock, LockOverridden, owner=lock.owner, age=lock.age)
            await self._start([taken])

    async def _usable(self, lock: Lock, taking: Coroutine[Any, Any, Any]) -> Taken | None:
        """The claim that came of a lock, if its item can be run here."""
        try:
            found = await taking
            settings = None if found is None else self.board.resolve(found.type, found.spec)
        except (BadInput, ValueError) as problem:
            self._leave(lock, problem)
            return None
        return None if settings is None else Taken(found, settings)

    def _settled(self, token: Token) -> bool:
        """Whether the settings of a partition can be computed."""
        try:
            self.board.resolve(token.type, token.spec)
        except (BadInput, ValueError) as problem:
            self._leave(token, problem)
            return False
        return token.version <= VERSION

    def _leave(self, one: Lock | Token, problem: Exception) -> None:
        if one.id not in self._left_alone:
            self.events.emit_of(one, ItemLeftAlone, message=str(problem))
        self._left_alone.add(one.id)

    async def _start(self, taken: Sequence[Taken]) -> None:
        certain = await trusted(self.board, [one.claim for one in taken])
        settings = {one.claim.id: one.settings for one in taken}
        self.runs.start([Taken(one, settings[one.id]) for one in certain])

    # ---- letting go

    def _let_go(self, count: int) -> None:
        """End the pumps that were begun last, those that are at their end counted."""
        since = {
            held.claim.id: held.claim.lock.since.timestamp()
            for held in self.holdings
            if not held.asked_to_end and not held.ended
        }
        asked = sum(bool(held.asked_to_end) for held in self.holdings)
        for name in youngest(since, max(count - asked, 0)):
            for held in self.holdings:
                if held.claim.id == name:
                    self._end(held, SHARED)

    def _end(self, held: Holding, reason: str) -> None:
        """Ask a pump to end, and stop it when its time is up."""
        held.ask_to_end(reason)
        self._start_beside(self._stop(held, reason))

    async def _stop(self, held: Holding, reason: str) -> None:
        drain = self.pump.drain.total_seconds()
        await self.board.clock.sleep(drain)
        if not held.ended:
            held.cut_short(f"{reason}, and it did not end within {drain:g} s")

    def _ended(self, held: Holding, ended: Ended) -> None:
        """A pump that was asked to end and returns is put back, with its checkpoint."""
        if ended.outcome is Outcome.OK and held.asked_to_end:
            ended = replace(ended, outcome=Outcome.CANCELLED, error=held.asked_to_end)
        elif ended.outcome is Outcome.OK:
            ended = replace(ended, outcome=Outcome.FAILED, error=UNASKED)
        self.releases.add(held, ended)

    async def _let_all_go(self) -> None:
        self.member = replace(self.member, slots=0)
        self._announced = -math.inf
        with suppress(TableError):
            await self._announce()
        end = self.board.clock.monotonic() + self._round
        while self._others and self._asked_to_stop == 1 and self.board.clock.monotonic() < end:
            await self._wait(end - self.board.clock.monotonic())
        for held in self.holdings:
            self._end(held, ENDING)
        end = self.board.clock.monotonic() + self.pump.drain.total_seconds() + LAST_RELEASES
        while len(self.holdings) and self.board.clock.monotonic() < end:
            if self._asked_to_stop > 1:
                for held in self.holdings:
                    held.cut_short(ENDING)
            await self._wait(end - self.board.clock.monotonic())
        with suppress(TableError):
            await forget(self.board, self.member.owner)

    # ---- beside the rounds

    async def _release(self) -> None:
        while True:
            await self.releases.next(0, hurry=True, slots_freed=lambda: None)
            self.holdings.changed.set()
            if self._stopping:
                self._changed.set()

    async def _announce(self) -> None:
        """Write the worker's row, once a round."""
        now = self.board.clock.monotonic()
        if now < self._announced + self._round:
            return
        if self._announced == -math.inf and self.member.slots:
            self.member = replace(self.member, started=await self.board.table.now())
        running = len(self.holdings)
        self.member = await announce(self.board, replace(self.member, running=running))
        self._announced = now

    async def _after(self, trouble: TableError) -> None:
        """Wait until the store may be asked again."""
        if not isinstance(trouble, Busy | Unavailable):
            what = f"the group {self.handler.type} cannot be served: {trouble}"
            self.events.emit(GroupTrouble, message=what)
            await self._wait(REFUSED.pause())
            return
        opens = asyncio.ensure_future(self.board.ready(self.board.shard(0), trouble, failures=1))
        await self._until(opens)

    async def _wait(self, seconds: float) -> None:
        """So long, or until something has changed."""
        await self._until(asyncio.ensure_future(self.board.clock.sleep(max(seconds, 0.0))))

    async def _until(self, awaited: "asyncio.Future[Any]") -> None:
        changed: asyncio.Future[Any] = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait([awaited, changed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            awaited.cancel()
            changed.cancel()
            self._changed.clear()


def _announced_twice(member: Member) -> bool:
    return (member.seen - member.started).total_seconds() >= TWICE
