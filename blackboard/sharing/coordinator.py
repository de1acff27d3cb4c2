"""The coordinator: one elected worker does the housekeeping of the board.

    each 5 minutes   counts the items, for `show` and `status`; plans those anew that a clock has
                     planned which was ahead, when it is back
    each hour        examines the rows, as `doctor` does, and emits what it finds; repairs nothing
    each day         deletes rows that are older than their retention and that no other part of
                     the program deletes: histories that no release prunes, tombstones, actions,
                     notices of removed items, mail of candidates that are gone; of the board, its
                     groups and its elections

No run depends on it. The coordinator is the leader of the election `coordinator`, a mutex. When it
is shut down, the next check of another worker finds that; when it dies, its lease has to run out.
The lease is long, because each check costs a request, and nothing here is urgent. A worker enters
the election half a minute after its start: one that is soon gone again does not take part.

All requests go through the worker's circuit breaker. Before each page of items, every few histories
and each deletion of other rows there is a pause, so that they are never in the way of a renewal. At
the end of the term the work stops at the next pause. A request that is late does no harm: each
deletion states the etag of what was read, and counts are not written over those of a later term.
Work that trouble of the store has ended is soon done again, from the start. A row that cannot be
used is reported, and keeps nothing else from being deleted.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from blackboard import events
from blackboard.doctor import Examination, examine
from blackboard.emitter import EventEmitter
from blackboard.errors import BadInput, BadRow, BlackboardError
from blackboard.model import Statistics
from blackboard.notify.notice_rows import forget_removed
from blackboard.protocol import keys, mail
from blackboard.protocol.actions import forget_old_actions
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.edits import bring_back
from blackboard.protocol.leaders import COORDINATOR, open_elections
from blackboard.protocol.planning import planning_of
from blackboard.protocol.retention import Pruned, Retention, prune_unreleased
from blackboard.protocol.status import count, write_statistics
from blackboard.rules.breaker import HOUSEKEEPING
from blackboard.rules.status import COUNTED_EVERY, ItemStatus
from blackboard.rules.wrong_clock import problem_of_times
from blackboard.sharing.election import Election, Term
from blackboard.table import TableError
from blackboard.worker.steady_clock import SteadyClock

MOST_REPORTED = 10_000
"""Items that are reported as failing, and findings of an examination."""
LARGEST_EXAMINED = 200_000
"""Items of a board that is examined: something of each is in memory meanwhile."""
RESIGNS_WITHIN = timedelta(seconds=3)
"""How long a worker that ends waits for the store to resign."""
ENTERS_AFTER = 30.0
"""Seconds from the start of a worker until it takes part in the election."""
LEASE = timedelta(minutes=15)
EXAMINES_EVERY = timedelta(hours=1)
PRUNES_EVERY = timedelta(days=1)
"""The time between two prunings, at the most."""
SETTLES = COUNTED_EVERY
"""The time from the beginning of a term until it examines and prunes for the first time."""
PAUSE = 0.1
"""Seconds of rest at each pause of a long operation."""


def prunes_every(retention: Retention) -> timedelta:
    """The time between two prunings: the shorter the retention, the more often."""
    kept = min(retention.age, retention.tombstones)
    return min(PRUNES_EVERY, max(COUNTED_EVERY, kept / 4))


class TermOver(Exception):
    """The worker is the coordinator no longer."""


@dataclass(slots=True, kw_only=True)
class Housekeeping:
    """The work of a coordinator, in one term."""

    board: BoardTable
    events: EventEmitter
    retention: Retention
    cycle: timedelta
    """The cycle of the workers, for the examination."""
    steady: SteadyClock
    term: int = 0
    is_over: Callable[[], bool] = lambda: False
    """Whether the term is over."""
    items: int | None = None
    """Their number as counted last, written or not; None: they were not counted yet."""
    written: Statistics | None = None
    """The counts as written last; None: the row has to be read before it is written again."""

    async def pause(self) -> None:
        """Leaves the store to other requests for a while. Raises TermOver."""
        await self.board.clock.sleep(PAUSE)
        if self.is_over():
            raise TermOver

    async def count(self) -> None:
        """Counts the items, writes that down, and reports which ones are failing."""
        by, failing = self.events.worker, list[str]()

        def note(status: ItemStatus) -> None:
            if status.failing and len(failing) < MOST_REPORTED:
                failing.append(status.item.id)

        counted = await count(self.board, by=by, term=self.term, pause=self.pause, each=note)
        self.items = counted.items
        self.events.emit(events.BoardCounted, items=counted.items, failing=tuple(failing))
        await self.pause()
        self.written = await write_statistics(self.board, counted, over=self.written)

    async def plan_anew(self) -> None:
        """Plans items anew whose times only a wrong clock explains, once after the store's clock
        came back from ahead, and reports those that cannot be. Stops when the clock jumps again.
        """
        returned = self.steady.returned
        if returned is None:
            return
        async for item in self.board.items(pause=self.pause):
            planning, now = planning_of(self.board, item), await self.board.table.now()
            if self.steady.doubtful or self.steady.returned != returned:
                return
            if planning is None or item.running:
                continue
            if problem := problem_of_times(item, planning, now=now):
                await self._bring_back(item.id, problem)
        if self.steady.returned == returned:
            self.steady.returned = None

    async def _bring_back(self, item_id: str, problem: str) -> None:
        try:
            done = await bring_back(self.board, item_id)
        except BlackboardError as refusal:
            self.events.emit(events.HousekeepingTrouble, message=f"plan {item_id} anew: {refusal}")
            return
        if done.changed:
            due, ready = done.item.slot, done.item.ready
            self.events.emit_of(
                done.item, events.TimesPutRight, problem=problem, due=due, ready=ready
            )

    async def examine(self) -> None:
        """Examines the rows, but for histories, unless the board is very large, or it is not known
        how large it is.
        """
        if self.items is None or self.items > LARGEST_EXAMINED:
            return
        request = Examination(cycle=self.cycle, quick=True, pause=self.pause)
        report = await examine(self.board, request)
        findings = [
            events.BoardFinding(
                code=finding.code,
                subject=finding.subject,
                problem=finding.problem,
                grave=finding.grave,
            )
            for finding in report.findings[:MOST_REPORTED]
        ]
        self.events.emit(events.BoardExamined, items=report.items, findings=tuple(findings))

    async def prune(self) -> None:
        """Deletes rows that are past their retention, of the board and of those that belong to it,
        once the store's clock may be trusted with that. A row that cannot be used is reported, and
        ends one duty on one board at the most.
        """
        while left := self.board.clock_proven_in():
            await self.board.clock.sleep(left)
            await self.pause()
        pruned, messages, actions, notices = Pruned(), 0, 0, 0
        boards = [board async for board in self._boards()]
        # The histories come last: those of a large board take hours, and a term may end meanwhile.
        for board in boards:
            with self._reported(board.name):
                actions += await forget_old_actions(board, age=self.retention.age, pause=self.pause)
            if board.name == keys.leaders_board(self.board.name):
                with self._reported(board.name):
                    messages = await mail.forget_old(board, pause=self.pause)
        with self._reported(self.board.name):
            notices = await forget_removed(self.board, pause=self.pause)
        for board in boards:
            with self._reported(board.name):
                done = await prune_unreleased(board, retention=self.retention, pause=self.pause)
                pruned += done
                if done.in_the_way is not None:
                    self._report(board.name, done.in_the_way)
        self.events.emit(
            events.Housekept,
            runs=pruned.runs,
            tombstones=pruned.tombstones,
            notices=notices,
            mail=messages,
            actions=actions,
        )

    async def _boards(self) -> AsyncIterator[BoardTable]:
        """The board, those of its groups, and that of its elections."""
        yield self.board
        meta = keys.meta_partition(self.board.name)
        async for row in self.board.table.scan(meta, keys.GROUP, keys.end_of(keys.GROUP)):
            try:
                group = self.board.group(row.key.removeprefix(keys.GROUP))
            except BadInput:
                continue  # no name for a group: `doctor` reports it
            yield group
        with self._reported(keys.leaders_board(self.board.name)):
            yield await open_elections(self.board)

    @contextmanager
    def _reported(self, board: str) -> Iterator[None]:
        """Emits a problem that keeps rows of a board from being deleted."""
        try:
            yield
        except (BadInput, BadRow) as problem:
            self._report(board, problem)

    def _report(self, board: str, problem: BadInput | BadRow) -> None:
        self.events.emit(events.HousekeepingTrouble, message=f"prune {board}: {problem}")


@dataclass(slots=True, kw_only=True)
class Coordinator:
    """A worker's part in coordinating its board."""

    board: BoardTable
    owner: str
    events: EventEmitter
    retention: Retention
    cycle: timedelta
    steady: SteadyClock
    """The store's clock, as `board` follows it."""
    _failures: int = 0
    """Entries into the election that failed, one after the other."""

    async def run(self) -> None:
        """Takes part in the election, and does the housekeeping of each term that it wins, until it
        is cancelled.
        """
        every = LEASE.total_seconds() / 3
        await self.board.clock.sleep(ENTERS_AFTER)
        while True:
            pause = every
            try:
                await self._take_part()
            except TableError:  # the breaker reports a store that is away
                self._failures += 1
                pause = min(HOUSEKEEPING.pause(self._failures), every)
            except Exception as problem:  # noqa: BLE001 - housekeeping must not end its worker
                self._election_trouble(problem)
            await self.board.clock.sleep(pause)

    async def _take_part(self) -> None:
        election = Election(
            self.board,
            name=COORDINATOR,
            owner=self.owner,
            lease=LEASE,
            ends_at_sigterm=False,
            resigns_within=RESIGNS_WITHIN,
            report=self._election_trouble,
        )
        async with election:
            self._failures = 0
            while True:
                await self._serve(await election.won())

    async def _serve(self, term: Term) -> None:
        """Does the housekeeping of one term."""
        house = Housekeeping(
            board=self.board,
            events=self.events,
            retention=self.retention,
            cycle=self.cycle,
            steady=self.steady,
            term=term.fence,
            is_over=lambda: bool(term.lost),
        )
        self.events.emit(events.CoordinatorElected, term=term.fence)
        try:
            async with asyncio.TaskGroup() as group:
                duties = [
                    group.create_task(duty)
                    for duty in (
                        self._keep(house.count, COUNTED_EVERY),
                        self._keep(house.plan_anew, COUNTED_EVERY),
                        self._keep(house.examine, EXAMINES_EVERY, after=SETTLES),
                        self._keep(house.prune, prunes_every(self.retention), after=SETTLES),
                    )
                ]
                await term.lost.wait()
                for duty in duties:
                    duty.cancel()
        finally:
            reason = term.lost.reason or "the worker ends"
            self.events.emit(events.CoordinatorEnded, term=term.fence, reason=reason)

    async def _keep(
        self,
        duty: Callable[[], Awaitable[None]],
        every: timedelta,
        *,
        after: timedelta = timedelta(0),
    ) -> None:
        """Does a duty again and again; sooner, where the store did not answer."""
        failures, pause = 0, after.total_seconds()
        while True:
            await self.board.clock.sleep(pause)
            pause = every.total_seconds()
            try:
                await duty()
            except TermOver:
                return
            except TableError:  # the breaker reports a store that is away
                failures += 1
                pause = min(HOUSEKEEPING.pause(failures), pause)
                continue
            except Exception as problem:  # noqa: BLE001 - housekeeping must not end its worker
                self._trouble(duty.__name__, problem)
            failures = 0

    def _election_trouble(self, problem: Exception) -> None:
        self._trouble("the election", problem)

    def _trouble(self, work: str, problem: Exception) -> None:
        is_explained = isinstance(problem, BadInput | BadRow)
        text = str(problem) if is_explained else f"{type(problem).__name__}: {problem}"
        self.events.emit(events.HousekeepingTrouble, message=f"{work}: {text}")
