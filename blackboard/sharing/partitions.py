"""A worker's part in one group of partitions: takes its share, runs a pump for each, releases them.

A group is a board of its own, `town.clicks` beside `town`, and a partition is an item whose run
does not end. So a partition that is held is a lock, one that is not is a waiting token, and to
take, renew, override, save and release are the batches that every item has. `rules/shares.py` says
what to take and what to release, and `sharing/races.py` does where partitions are raced for; here
that is done, round by round.

To release a partition, its pump is asked to end (`ctx.stopping`). When it has returned, or when its
time for that is up, the lock is released and the partition is due at once: only then does another
worker claim it. A worker that is asked to stop says so in its row and waits a round: by then the
others look each second. Then it releases everything. Pumps are asked to end in time, and all of
that has a limit, however long the store takes to answer.
"""

import asyncio
import math
from collections.abc import Awaitable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from blackboard.emitter import EventEmitter
from blackboard.errors import BlackboardError
from blackboard.events import GroupTrouble, LockAdopted, LockOverridden
from blackboard.handlers.handler import Handler, Pump
from blackboard.model import Ended, Lock, Member, Outcome, State, Token, replace
from blackboard.protocol.board_row import BoardGone
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import (
    Claim,
    StaleRun,
    adopt,
    claim,
    claims_at_once,
    free_unless_retried,
    override_run,
    trusted,
)
from blackboard.protocol.edits import bring_back
from blackboard.protocol.members import announce, forget, workers
from blackboard.protocol.releases import Released
from blackboard.rules.breaker import REFUSED
from blackboard.rules.due import Move, decide_lock
from blackboard.rules.next_run import is_ahead
from blackboard.rules.shares import INITIAL_DELAY, UNTAKEN, Picture, decide, youngest
from blackboard.sharing.group_rows import GroupRows, PartitionNames, row_in_the_way
from blackboard.sharing.lasting_trouble import LastingTrouble
from blackboard.sharing.looks import ROUND, Look, Pace
from blackboard.sharing.races import GroupRaces, Races
from blackboard.table import Busy, Conflict, Etag, TableError, Unavailable, Unknown
from blackboard.tasks import finishing, until_one_ends
from blackboard.worker.heartbeat import Heartbeat
from blackboard.worker.holdings import Holding, Holdings
from blackboard.worker.left_alone import LeftAlone
from blackboard.worker.membership import new_member
from blackboard.worker.release_queue import LAST_RELEASES, ReleaseQueue
from blackboard.worker.running import Runs
from blackboard.worker.steady_clock import CONFIRMED_AFTER, SteadyClock

SHORTEST_ROUND = 1.0
"""The shortest round in seconds."""
LAST_MESSAGES = 2.0
"""Seconds that a worker which ends has to publish on the bus what it released."""
MOST_PUMPS = 1_000_000
"""Pumps in one worker: more than ever fall to it."""
UNASKED = "it returned, and was not asked to end (a pump goes on until ctx.stopping is true)"
SHARED = "released for another worker"
ENDING = "the worker is stopping"
_ALL = datetime(9999, 1, 1, tzinfo=UTC)
"""A time after all tokens."""


@dataclass(slots=True, kw_only=True)
class GroupWorker:
    """Serves one group, beside the rest of a worker. `work` is called once."""

    board: BoardTable
    """The board of the group."""
    parent: str
    """The name of the board that it belongs to."""
    handler: Handler
    owner: str
    events: EventEmitter
    holdings: Holdings
    heartbeat: Heartbeat
    releases: ReleaseQueue
    runs: Runs
    steady: SteadyClock
    races: Races | None = None
    """The races of a pump with the balance `grab`; None: it has another balance."""
    member: Member = field(init=False)
    """The worker's row on the group's board."""
    _rows: GroupRows = field(init=False)
    _racing: GroupRaces | None = None
    _group: asyncio.TaskGroup = field(init=False)
    _beside: dict[asyncio.Task[None], None] = field(default_factory=dict)
    """The tasks that are cancelled at the end, in the order they were begun."""
    _left_alone: LeftAlone = field(init=False)
    _stop_asked: asyncio.Event = field(default_factory=asyncio.Event)
    _stop_now: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when pumps have no time left to end."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the worker is asked to stop, or names were given that are not there."""
    _trouble: LastingTrouble = field(init=False)
    """That the group cannot be served."""
    _begun: float = 0.0
    _announced: float = -math.inf
    _pace: Pace = field(default_factory=Pace)
    _left: dict[str, float] = field(default_factory=dict)
    """The partitions without a worker at the last look, and since when it has seen that."""
    _explained: dict[str, Etag] = field(default_factory=dict)
    """Partitions that wait for more than a moment, and the etags of their tokens, once it was
    examined whether a clock was wrong."""
    _others: bool = False
    """Whether other workers are there to take what it releases."""

    def __post_init__(self) -> None:
        self._left_alone = LeftAlone(self.events)
        self._trouble = LastingTrouble(self.board.clock)
        group = self.handler.type
        names = PartitionNames(
            self.pump.partitions,
            group=group,
            settings=self.runs.settings.get(group, {}),
            clock=self.board.clock,
            events=self.events,
            named=self._named,
        )
        self._rows = GroupRows(
            board=self.board, parent=self.parent, group=group, names=names, events=self.events
        )
        self.member = new_member(
            self.owner, now=self.board.clock.now(), types=group, cycle=self._round
        )
        if self.races is not None:
            self.races.times.check_drain(self.pump.drain.total_seconds())
            self._racing = GroupRaces(
                races=self.races,
                owner=self.owner,
                rows=self._rows,
                start=self._start_beside,
                claim=self._claim_won,
                release=self._release_lost,
            )

    @property
    def pump(self) -> Pump:
        assert self.handler.pump is not None
        return self.handler.pump

    @property
    def _round(self) -> float:
        return max(self._rows.lease * ROUND, SHORTEST_ROUND)

    @property
    def _stopping(self) -> bool:
        return self._stop_asked.is_set()

    def stop(self, *, at_once: bool = False) -> None:
        """Asks the worker to stop. Asked once, it releases everything when the others have seen
        that it leaves. Asked again, or `at_once`: now.
        """
        if at_once or self._stopping:
            self._stop_now.set()
        self._stop_asked.set()
        self.holdings.slots.close()  # a claim that is answered from now on is put back
        self._changed.set()

    async def work(self) -> None:
        """Serves the group until `stop` is called."""
        self.releases.worker = asyncio.current_task()
        self._begun = self._pace.last = self.board.clock.monotonic()
        try:
            async with asyncio.TaskGroup() as self._group:
                for work in (
                    self.heartbeat.run(),
                    self._write_releases(),
                    self.releases.keep_pruning(0),
                    self._end_pumps(),
                    self._rows.names.keep_asking(),
                ):
                    self._start_beside(work)
                await until_one_ends(self._start_beside(self._serve()), self._stop_is_over())
                await self.releases.pruned()
                for task in tuple(self._beside):
                    task.cancel()
        except asyncio.CancelledError:
            await finishing(self._put_back())
            raise
        finally:
            await self.runs.close()
            if self._racing is not None:
                await self._racing.node.bus.close()

    async def _put_back(self) -> None:
        """As `Worker` does."""
        await self.runs.close()
        await self.releases.put_back()

    async def _stop_is_over(self) -> None:
        """Waits until the time is up that a worker has to stop, whatever the store answers."""
        await self._stop_asked.wait()
        drain = self.pump.drain.total_seconds()
        await self.board.clock.sleep(self._round + drain + LAST_RELEASES)

    def _start_beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(work)
        self._beside[task] = None
        task.add_done_callback(lambda done: self._beside.pop(done, None))
        return task

    def _named(self, names: tuple[str, ...]) -> None:
        """Begins the next round at once, unless the names are those that are there."""
        if names != self._rows.made:
            self._changed.set()

    # ---- rounds

    async def _serve(self) -> None:
        while not self._stopping:
            try:
                pause = await self._look_and_act()
            except BoardGone:  # it was deleted with the table
                message = f"the board {self.board.name!r} is gone: it is made anew"
                self.events.emit(GroupTrouble, message=message)
                self._rows.gone()
                await self._wait(REFUSED.pause())
            except (Busy, Unavailable) as trouble:
                await self._until(self.board.ready(self.board.shard(0), trouble, failures=1))
            except (TableError, BlackboardError) as problem:
                self._cannot_serve(problem)
                await self._wait(REFUSED.pause())
            else:
                self._trouble.end()
                await self._wait(pause)
        if self._rows.made is not None:
            await self._leave_group()

    async def _look_and_act(self) -> float:
        """Reads the rows and acts on them, once the group's board and its partitions are there.
        Returns the seconds until the next look.
        """
        if not await self._is_made():
            return REFUSED.pause()
        await self._announce()
        if await self.steady.doubts(self.board):
            return CONFIRMED_AFTER
        look = await self._look()
        now = self.board.clock.monotonic()
        await self._see_to_own(look.locks)
        await self._bring_back(look)
        picture = await self._with_items(self._picture(look))
        self._others = len(picture.workers) > 1
        if self._racing is not None:
            self._racing.looked(picture, look.names, self.holdings.ids)
            if self._racing.decide:
                return self._round
        if not picture.held and not picture.stale and now < self._begun + INITIAL_DELAY:
            return self._begun + INITIAL_DELAY - now
        again = await self._share(look, picture, now)
        return self._pace.pause(
            again,
            now=now,
            held=len(self.holdings),
            a_round=self._round,
            longest=self._rows.lease + self.pump.drain.total_seconds(),
        )

    async def _is_made(self) -> bool:
        """Makes what is not there of the group's board and its partitions. Returns whether the
        board is there. The races begin when it is there for the first time.
        """
        is_new = self._rows.made is None
        if is_new and self._rows.to_make is None:  # to wait for names does not count as being late
            self._pace.last = self.board.clock.monotonic()
        await self._rows.keep()
        is_there = self._rows.made is not None
        if is_new and is_there and self._racing is not None:
            self._start_beside(self._racing.node.run())
        return is_there

    async def _share(self, look: Look, picture: Picture, now: float) -> float | None:
        """Takes and releases what `rules/shares.py` says. Returns the seconds until the next look;
        None: a round.
        """
        waits = dict.fromkeys(picture.free, UNTAKEN) | dict.fromkeys(picture.stale, self._round)
        self._left = {name: self._left.get(name, now) for name in waits}
        left = [name for name, since in self._left.items() if since <= now - waits[name]]
        balance = self.pump.balance
        decision = decide(
            picture, self.owner, balance=balance, late=look.late, slow=look.slow, left=left
        )
        await self._take(look, decision.take, one_by_one=decision.contended)
        if decision.release and not self._stopping:
            held = {name for name, owner in picture.held.items() if owner == self.owner}
            held.difference_update(picture.paused)
            self._release_youngest(held, keep=len(held) - decision.release)
        return decision.again

    async def _look(self, *, at_workers: bool = True) -> Look:
        """Reads the rows, workers first: one that leaves deletes its row when its locks are gone.
        Of a damaged partition that has several rows, the first counts: a lock before all tokens.
        """
        members = await workers(self.board) if at_workers else ()
        rows = dict[str, Lock | Token]()
        async for row in self.board.walk(0, until=_ALL):
            if row.type == self.handler.type:
                rows.setdefault(row.id, row)
        seen = self.board.clock.monotonic()
        return Look(
            late=self._pace.looked(seen, a_round=self._round),
            slow=self._pace.is_slow(seen, a_round=self._round),
            locks=[row for row in rows.values() if isinstance(row, Lock)],
            tokens=[row for row in rows.values() if isinstance(row, Token)],
            workers=members,
            now=await self.board.table.now(),
        )

    def _picture(self, look: Look) -> Picture:
        resolution = self.board.table.resolution
        return look.picture(self.owner, a_round=self._round, resolution=resolution)

    async def _with_items(self, picture: Picture) -> Picture:
        """The picture with what the items say, where a worker may have to release some: which are
        paused, and which moved while locks and tokens were read, so that they are in neither.
        """
        if picture.is_even:
            return picture
        items = [item async for item in self.board.items() if item.type == self.handler.type]
        there = picture.held.keys() | picture.stale.keys() | {*picture.free, *picture.waiting}
        moved = [item.id for item in items if item.state is State.ACTIVE and item.id not in there]
        return replace(
            picture,
            paused=[item.id for item in items if item.is_paused],
            waiting=[*picture.waiting, *moved],
        )

    async def _see_to_own(self, locks: Sequence[Lock]) -> None:
        """Adopts locks of this worker that none of its runs has, and finds out what became of runs
        whose lock is gone.
        """
        nonces = {lock.nonce for lock in locks}
        for held in self.holdings:
            if held.claim.nonce not in nonces and not held.ended:
                self.heartbeat.ask(held)
        in_flight = self.holdings.nonces | self.board.in_flight
        for lock in locks:
            move = decide_lock(
                lock,
                owner=self.owner,
                types=(),
                in_flight=in_flight,
                resolution=self.board.table.resolution,
                given_up=self.holdings.given_up,
            )
            if move is not Move.ADOPT:
                continue
            with self._leaving_alone(lock):
                if made := await adopt(self.board, lock):
                    self.events.emit_of(lock, LockAdopted)
                    await self._start([made])

    async def _bring_back(self, look: Look) -> None:
        """Plans partitions anew that wait because a clock was wrong. Few others wait for longer
        than a moment, as their pumps asked for; each is examined once.
        """
        waiting = {token.id: token for token in look.tokens if is_ahead(token.ready, now=look.now)}
        etags = {name: token.etag for name, token in waiting.items()}
        for name, etag in etags.items():
            if self._explained.get(name) == etag:
                continue
            with self._leaving_alone(waiting[name]):
                await bring_back(self.board, name)
        self._explained = etags

    # ---- taking

    async def _take(self, look: Look, names: Collection[str], *, one_by_one: bool = False) -> None:
        if self._stopping:  # it was asked to while the rows were read
            return
        names = frozenset(names)
        tokens = [token for token in look.tokens if token.id in names]
        most = 1 if one_by_one else claims_at_once(self.board)
        work = [self._claim(tokens[at : at + most]) for at in range(0, len(tokens), most)]
        work += [self._override(lock) for lock in look.locks if lock.id in names]
        for problem in await asyncio.gather(*work, return_exceptions=True):
            if problem is not None:
                raise problem

    async def _claim(self, tokens: Sequence[Token]) -> None:
        """Claims them in one batch. When another worker was faster at one, the next look deals them
        anew; one that does not fit its item is left out.
        """
        left = list[Token]()
        for token in tokens:
            with self._leaving_alone(token):
                self.board.resolve(token.type, token.spec)
                left.append(token)
        while left and not self._stopping:
            answer = await claim(self.board, left, owner=self.owner)
            if answer.broken is None:
                await self._start(answer.claims)
                return
            if answer.refused is not None:
                self._left_alone.report(answer.broken, answer.refused)
            left = [token for token in left if token is not answer.broken]

    async def _override(self, lock: Lock) -> None:
        with self._leaving_alone(lock):
            stale = await free_unless_retried(self.board, lock)
            if not isinstance(stale, StaleRun) or self._stopping:
                return
            if made := await override_run(self.board, stale, owner=self.owner):
                self.events.emit_of(lock, LockOverridden, owner=lock.owner, age=lock.age)
                await self._start([made])

    @contextmanager
    def _leaving_alone(self, row: Lock | Token) -> Iterator[None]:
        """Leaves a partition alone that cannot be run here."""
        try:
            yield
        except (BlackboardError, ValueError) as problem:
            self._left_alone.report(row, problem)

    async def _start(self, claims: Sequence[Claim]) -> None:
        self.runs.start(await trusted(self.board, claims))

    # ---- the lease grab

    async def _claim_won(self, name: str) -> bool:
        """Claims a partition that was won in a race, if it is free or stale by now. A worker that
        is late overrides nothing: it looks again when it is late no more.
        """
        assert self._racing is not None
        try:
            while not self._stopping and self._racing.decide:
                look = await self._look(at_workers=False)
                picture = self._picture(look)
                if name not in picture.stale or not look.late:
                    await self._take(look, {*picture.free, *picture.stale} & {name})
                    break
                await self.board.clock.sleep(self._pace.late_until - self.board.clock.monotonic())
        except TableError as trouble:
            if not isinstance(trouble, Busy | Unavailable | Unknown):  # the breaker reports those
                self._cannot_serve(trouble)
        finally:
            self.holdings.changed.set()  # a worker that leaves waits for its claims
        return name in self.holdings.ids

    def _release_lost(self, name: str) -> None:
        """Releases a partition that another node has won."""
        for held in self.holdings:
            if held.claim.id == name:
                self._end(held, SHARED)

    # ---- releasing

    def _release_youngest(self, names: Collection[str], *, keep: int) -> None:
        """Ends the pumps of these partitions that were begun last, so that `keep` go on. Pumps that
        are about to end, or have ended since the rows were read, are not among those.
        """
        going_on = {
            held.claim.id: held
            for held in self.holdings
            if held.claim.id in names and not held.asked_to_end and not held.ended
        }
        since = {name: held.claim.lock.since.timestamp() for name, held in going_on.items()}
        for name in youngest(since, max(len(since) - keep, 0)):
            self._end(going_on[name], SHARED)

    def _end(self, held: Holding, reason: str) -> None:
        """Asks a pump to end, once, and stops it when its time is up."""
        if not held.asked_to_end and not held.ended:
            held.ask_to_end(reason)
            self._start_beside(self._stop(held, reason))

    async def _stop(self, held: Holding, reason: str) -> None:
        drain = self.pump.drain.total_seconds()
        await self.board.clock.sleep(drain)
        if not held.ended:
            held.cut_short(f"{reason}, and it did not end within {drain:g} s")

    def ended(self, held: Holding, ended: Ended) -> None:
        """Releases the partition of a pump that has ended. One that was asked to, or that lost its
        lock, has not failed; not even if it lost that while it saved, and raised.
        """
        returned = ended.outcome is Outcome.OK
        if held.lost and ended.outcome is not Outcome.CANCELLED:
            ended = held.as_stopped(ended)
        elif returned and held.asked_to_end:
            ended = replace(ended, outcome=Outcome.CANCELLED, error=held.asked_to_end)
        elif returned:
            ended = replace(ended, outcome=Outcome.FAILED, error=UNASKED)
        self.releases.add(held, ended)

    async def _end_pumps(self) -> None:
        """Ends all pumps when the worker is asked to stop, whatever request the rounds wait for."""
        await self._stop_asked.wait()
        if self._others and not (self._racing and self._racing.decide):
            # The others look each second when they have seen that this one leaves.
            await until_one_ends(self.board.clock.sleep(self._round), self._stop_now.wait())
        for held in self.holdings:
            self._end(held, ENDING)
        if self._racing is not None:
            self._start_beside(self._racing.node.leave())
        await self._stop_now.wait()
        for held in self.holdings:
            held.cut_short(ENDING)

    async def _leave_group(self) -> None:
        """Says in the worker's row that it leaves, and removes the row when all is released."""
        self.member = replace(self.member, slots=0)
        self._announced = -math.inf
        with suppress(TableError):
            await self._announce()
        while len(self.holdings) or self.board.in_flight:
            self.holdings.changed.clear()
            await self.holdings.changed.wait()
        if self._racing is not None:
            pause = self.board.clock.sleep(LAST_MESSAGES)
            await until_one_ends(self._racing.node.leave(), pause)
        with suppress(TableError):
            await forget(self.board, self.owner)

    # ---- beside the rounds

    async def _write_releases(self) -> None:
        try:
            while True:
                await self.releases.next(0, hurry=True)
        finally:
            self.releases.cancel()

    async def landed(self, _batch: Mapping[str, Released]) -> None:
        self.holdings.changed.set()
        if self._racing is not None:
            self._racing.node.ended(self.holdings.ids)

    async def _announce(self) -> None:
        """Writes the worker's row, once a round."""
        now = self.board.clock.monotonic()
        if now < self._announced + self._round:
            return
        if self._announced == -math.inf and self.member.slots:
            self.member = replace(self.member, started=await self.board.table.now())
        running = len(self.holdings)
        self.member = await announce(self.board, replace(self.member, running=running))
        self._announced = now

    def _cannot_serve(self, problem: TableError | BlackboardError) -> None:
        why = row_in_the_way(self.board) if isinstance(problem, Conflict) else str(problem)
        if self._trouble.note(why):
            message = f"the group {self.handler.type} cannot be served: {why}"
            self.events.emit(GroupTrouble, message=message)

    async def _wait(self, seconds: float) -> None:
        """Waits so long, or until something has changed."""
        await self._until(self.board.clock.sleep(max(seconds, 0.0)))

    async def _until(self, awaited: Awaitable[object]) -> None:
        """Waits until that has ended, or something has changed."""
        try:
            await until_one_ends(awaited, self._changed.wait())
        finally:
            self._changed.clear()
