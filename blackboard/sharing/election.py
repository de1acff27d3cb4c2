"""A candidate in an election: `async with board.election("nightly-report") as leader:`.

A leader is the holder of an item that no worker runs. The elections of a board are a board of their
own, NAME.leaders, with one item for each. The lease, the fence, the override and the settling of
lost replies are those of every lock; the fence is the term.

A candidate checks every third of a lease: a leader renews its lock, others look at it. A candidate
that stands (`rules/election.py`) claims the lock when it is free, or overrides it when it is stale.
It is the leader while it holds the lock and is before its deadline: 0.8 of a lease after it sent
the last renewal that was acknowledged, which is earlier than any other may take the lock; but for a
person that unlocks or removes it, which its leader finds out at its next check. A `Term` that is
over stays over: a candidate that takes the lock again has another one.

The lease is that of the item: what a candidate says is for making it. Where it was edited, all
candidates follow the lease of the lock that they see or hold.

At the end of the block, and at SIGTERM, a leader resigns: the lock is free at once, and the next
check of another candidate takes it.

A request without an answer, or a row that a check cannot read, ends no block: it checks again. Both
are logged seldom (`lasting_trouble.py`), a store that is away once it has answered no check for 0.8
of a lease; so is its return.

Not promised: that code which computes through its deadline stops. What it writes then carries a
term that is no longer the highest; a target that refuses lower terms is safe.
"""

import asyncio
import logging
import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Literal, Self

from blackboard.clock import Clock
from blackboard.errors import (
    BadInput,
    BadRow,
    BlackboardError,
    BoardClosed,
    Missing,
    OfOneProcess,
)
from blackboard.model import (
    Ended,
    Identifier,
    Item,
    Lock,
    Message,
    MessageKind,
    Outcome,
    Token,
    replace,
)
from blackboard.phrases import command, quoted
from blackboard.protocol import additions, claims, edits, leaders, mail
from blackboard.protocol.board_row import BoardGone
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim
from blackboard.protocol.groups import ELECTION_EVERY, LONGEST_ELECTION_LEASE, check_election_lease
from blackboard.protocol.keys import lock_key, next_key
from blackboard.protocol.members import announce, forget, workers
from blackboard.protocol.releases import FinishedRun, release
from blackboard.protocol.retention import Retention, prune, prunes_after
from blackboard.protocol.rows import readable
from blackboard.rules import election
from blackboard.rules.breaker import renewals
from blackboard.rules.due import Move, deadline, decide_lock, decide_token
from blackboard.rules.next_run import is_ahead
from blackboard.runners.signals import LoopSignal
from blackboard.schedule.times import duration_of, format_duration
from blackboard.sharing.lasting_trouble import LastingTrouble
from blackboard.spec import SHORTEST_LEASE, Spec
from blackboard.table import Busy, TableError, read
from blackboard.tasks import until_one_ends
from blackboard.worker import sigterm
from blackboard.worker.membership import new_member

_log = logging.getLogger("blackboard")
Kind = Literal["mutex", "bully", "ring"]

HIGHEST_RANK = 10**9
JITTER = 0.2
"""The part of the time between two checks by which the next may come earlier."""
HURRY = 0.5
"""Seconds between two checks of bully or ring while there is no leader, at the most."""
RETENTION = Retention()
TAKEOVERS = 10_000
"""How many terms in a row may end without a release, before the item is planned anew."""
RESIGNED, UNANSWERED, GONE, FORKED = (
    "it has resigned",
    "its renewals were not answered before its lease ran out",
    "its lock was overridden, unlocked or removed",
    "this process was forked from that of its candidate",
)
"""Why a term is over."""


class TermLost(OfOneProcess, LoopSignal):
    """`term.lost`: true once the term is over, and from then on. As `ctx.lost`. The first look
    after the deadline of its lock ends it, in whatever thread. In a process that is forked
    meanwhile it is true: only the other one leads.
    """

    def __init__(self, claim: Claim, clock: Clock) -> None:
        super().__init__()
        self.claim = claim
        """The claim of the term, as it was renewed last."""
        self._clock = clock
        self._pid = os.getpid()

    @property
    def _is_forked(self) -> bool:
        return os.getpid() != self._pid

    def __bool__(self) -> bool:
        if self._is_forked:  # not `set`: the loop that is waited on is the other process's
            return True
        if not self._is_set and self._clock.monotonic() >= self.claim.deadline:
            self.set(UNANSWERED)
        return self._is_set

    async def _wait(self, timeout: float | None) -> bool:  # noqa: ASYNC109 - as in threads
        return self._is_forked or await super()._wait(timeout)

    @property
    def reason(self) -> str:
        """Why, in words; "" while the term goes on."""
        if self._is_forked and not self._is_set:
            return FORKED
        return self._reason if self else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A term of a leader, as `won` returns it. Once it is over it stays over, also where its
    candidate leads again: that is another term.
    """

    fence: int
    """Higher than that of every term before. A target that refuses lower ones refuses a leader that
    was overtaken."""
    lost: TermLost
    """True once the term is over; `reason` says why. `await lost.wait()`."""


class Election(OfOneProcess):
    """A candidate in an election, from the start of the block to its end. Made by
    `board.election`; belongs to one event loop.
    """

    def __init__(
        self,
        board: BoardTable,
        *,
        name: str,
        owner: str,
        kind: Kind = "mutex",
        lease: str | float | timedelta = "15s",
        rank: int = 0,
        preempt: bool = True,
        ends_at_sigterm: bool = True,
        resigns_within: timedelta | None = None,
        report: Callable[[BlackboardError], None] | None = None,
        check_loop: Callable[[], None] | None = None,
    ) -> None:
        """`owner` is the name of the candidate, which no other has. Without `ends_at_sigterm`
        SIGTERM is left to the program. At the end of the block it waits for the store for
        `resigns_within`, a lease if none is given. `report` is called when its checks begin to fail
        for another problem than a store that is away; without it that is logged, and a store that
        is away, too. `check_loop` raises BlackboardError on another loop than that of its board.
        """
        self.name = name
        self.kind = _checked_kind(kind)
        self.lease = _checked_lease(lease)
        self.owner = owner
        """The candidate, as `blackboard leader` and the history name it."""
        self._check_loop = check_loop or (lambda: None)
        self._main = board
        self._clock = board.clock
        self._state = election.Candidacy(
            kind=self.kind,
            id=self.name,
            me=Identifier(_checked_rank(rank, self.kind), self.owner),
            times=election.ElectionTimes(lease=self.lease.total_seconds()),
            preempt=preempt,
        )
        self._stand = False
        self._report = report or self._log_problem
        self._logs_outages = report is None
        self._problem = LastingTrouble(self._clock)
        """That its checks fail, and the store answers."""
        self._outage = LastingTrouble(self._clock)
        """That the store does not answer."""
        self._last: Term | None = None
        """The last term: that in which it leads, or one that is over, whose lock may still be
        there."""
        self._won = asyncio.Event()
        self._leaving = asyncio.Event()
        self._hurries = True
        self._announced: float | None = None
        self._others: tuple[Identifier, ...] | None = None
        """The other candidates, as read in this check; None: not yet."""
        self._ranks: dict[str, int] = {}
        self._unfetched: dict[str, tuple[Message, float]] = {}
        """Lists of a ring that were sent, by the keys of their rows, and from when they are late.
        """
        self._ends_at_sigterm = ends_at_sigterm
        self._resigns_within = (resigns_within or self.lease).total_seconds()
        self._block: sigterm.OfTask | None = None
        self._left: asyncio.Task[None] | None = None
        self._board_closed = False
        self._group = asyncio.TaskGroup()

    # ---- the state, for programs

    @property
    def is_leader(self) -> bool:
        """Whether it holds the lock and is before its deadline."""
        return self._term is not None

    async def won(self, timeout: float | None = None) -> Term:  # noqa: ASYNC109 - as in threads
        """Waits until it is the leader. Returns the term in which it leads. Raises TimeoutError
        where it does not lead within `timeout` seconds, BadInput where that is no number of them,
        BoardClosed once its board closes, BlackboardError outside of the block.
        """
        self._check_loop()
        _check_timeout(timeout)
        async with asyncio.timeout(timeout):
            while (term := self._term) is None:
                self._check_board()
                if self._block is None or self._leaving.is_set():
                    within = "inside the block of `board.election(...)`"
                    raise BlackboardError(f"there is a candidate of {self.name!r} only {within}")
                self._won.clear()
                await self._won.wait()
        return term

    @property
    def _term(self) -> Term | None:
        """The term in which it leads."""
        return None if self._last is None or self._last.lost else self._last

    # ---- the block

    async def __aenter__(self) -> Self:
        self._check_loop()
        if self._block is not None:
            raise BlackboardError("an election is entered once: ask the board for another one")
        self._check_board()
        self._board = await leaders.open_elections(self._main, create=True)
        await self._added()
        if self.kind is not election.ElectionKind.MUTEX:
            with suppress(TableError):  # the coordinator deletes it, too
                await mail.forget_old(self._board)
        now = await self._board.table.now()
        check, rank = self._state.times.check, self._state.me.rank
        self._member = new_member(self.owner, now=now, types=self.name, cycle=check, rank=rank)
        self._check_board()  # it may have been closed meanwhile
        self._block = sigterm.OfTask()
        await self._group.__aenter__()
        self._working = self._group.create_task(self._work())
        self._watching = self._group.create_task(self._watch())
        if self._ends_at_sigterm:
            sigterm.catch(self._block)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Resigns and leaves. A cancellation meanwhile waits for that, for twice `resigns_within`
        and a check at the most.
        """
        leaving = self._begin_to_leave()
        cancelled = problem if isinstance(problem, asyncio.CancelledError) else None
        while not leaving.done():
            try:
                await asyncio.wait([leaving])
            except asyncio.CancelledError as another:
                cancelled = another
        self._watching.cancel()
        assert self._block is not None
        try:
            await sigterm.leave(self._group, self._block, cancelled, traceback)
        finally:
            self._won.set()  # a `won` that still waits raises

    async def end(self) -> None:
        """Resigns, because its board is closed. It is no candidate any more."""
        self._board_closed = True
        if self._block is not None:
            await asyncio.wait([self._begin_to_leave()])
            self._watching.cancel()
            self._won.set()  # a `won` that still waits raises

    def _check_board(self) -> None:
        if self._board_closed:
            raise BoardClosed

    def _begin_to_leave(self) -> "asyncio.Task[None]":
        self._leaving.set()
        if self._left is None:
            self._left = asyncio.get_running_loop().create_task(self._leave())
        return self._left

    async def _leave(self) -> None:
        """Ends the check under way, then releases the lock."""
        await asyncio.wait([self._working], timeout=self._resigns_within)
        self._working.cancel()
        await asyncio.wait([self._working])
        if self.kind is not election.ElectionKind.MUTEX:
            with suppress(TableError, TimeoutError):
                async with asyncio.timeout(self._state.times.check):
                    await forget(self._board, self.owner)
        await self._resign()

    # ---- the item

    async def _added(self) -> None:
        """Makes the item of the election if it is missing. Raises BadInput where the item is of
        another kind, or has another lease.
        """
        spec = Spec(
            every=ELECTION_EVERY, stale_after=format_duration(self.lease), retries=TAKEOVERS
        )
        item = await self._item()
        if item is None:
            try:
                done = await additions.add_election(self._board, self.name, self.kind.value, spec)
            except BadInput:  # another candidate was faster
                item = await self._item()
                if item is None:
                    raise
            else:
                item = done.item
        board = self._board.name
        if item.type != self.kind.value:
            raise BadInput(
                "kind",
                f"the election {self.name!r} is a {item.type}",
                f"all candidates say the same; {command('rm', self.name, board=board)} ends it",
            )
        lease = self._board.resolve(item.type, item.spec).stale_after
        if isinstance(lease, timedelta) and lease != self.lease:
            edit = f"edit --stale-after {format_duration(self.lease)}"
            raise BadInput(
                "lease",
                f"that of the election {self.name!r} is {format_duration(lease)}",
                f"all candidates say the same; {command(edit, self.name, board=board)} changes it",
            )

    async def _item(self) -> Item | None:
        return await self._board.existing(self.name)

    # ---- checks

    async def _work(self) -> None:
        failures, answered = 0, self._clock.monotonic()
        while not self._leaving.is_set():
            fraction = self._board.chance.fraction()
            try:
                await self._check()
            except (TableError, BlackboardError) as trouble:
                failures += 1
                asked = trouble.retry_after if isinstance(trouble, Busy) else 0.0
                backoff = renewals(self._state.times.check)
                pause = backoff.pause(failures, asked=asked, fraction=fraction)
                if isinstance(trouble, TableError):
                    self._log_outage(trouble, answered=answered)
                else:
                    answered = self._note_answer()
                    if self._problem.note(str(trouble)):
                        self._report(trouble)
            else:
                failures, answered = 0, self._note_answer()
                self._problem.end()
                every = self._state.times.check
                pause = min(every, HURRY) if self._hurries else every
                pause *= 1 - JITTER * fraction
            await until_one_ends(self._clock.sleep(pause), self._leaving.wait())

    def _log_outage(self, trouble: TableError, *, answered: float) -> None:
        """Logs that the store does not answer, where that lasts longer than a term could."""
        is_long = self._clock.monotonic() >= deadline(answered, self._state.times.lease)
        if self._logs_outages and is_long and self._outage.note(str(trouble)):
            problem = "its candidate cannot lead while the store is away"
            _log.warning("the election %r: %s: %s", self.name, problem, trouble)

    def _note_answer(self) -> float:
        """Logs that the store answers again, where an outage was logged. Returns when it answered,
        in monotonic seconds.
        """
        if self._outage.end():
            _log.warning("the election %r: the store answers again", self.name)
        return self._clock.monotonic()

    def _log_problem(self, problem: BlackboardError) -> None:
        _log.warning("the election %r: %s", self.name, problem)

    async def _check(self) -> None:
        """Renews or looks, reads what other candidates sent, and takes or releases the lock."""
        self._others, self._hurries = None, False
        if (term := self._term) is not None:  # over by itself from one look to the next
            await self._renew(term)
        if self.kind is not election.ElectionKind.MUTEX:
            await self._exchange()
        if not self.is_leader:
            await self._compete()
            return
        await self._step(election.Looked(others=self._state.others, leader=self._state.me))
        if not self._stand:
            await self._resign()

    async def _compete(self) -> None:
        """Looks at the lock, and takes it if it is free or stale and this candidate stands."""
        row = await self._look()
        if row is None:
            await self._not_ready()
            return
        if isinstance(row, Lock):
            self._go_by(row.stale_after)
            if row.owner == self.owner:
                await self._found_own(row)
                return
        owner, leader, others = self._leader_of(row), None, self._state.others
        has_ranks = self.kind is not election.ElectionKind.MUTEX
        if has_ranks and (owner is None or owner not in self._ranks):
            others = await self._candidates()
        if owner is not None:
            leader = Identifier(self._ranks.get(owner, self._state.me.rank), owner)
        await self._step(election.Looked(others=others, leader=leader))
        if self._stand and leader is None and not self._leaving.is_set():
            await self._take(row)
        self._hurries = has_ranks and not self.is_leader and (leader is None or self._stand)

    async def _not_ready(self) -> None:
        """Handles an election without a lock, and without a token that is ready: it is paused, or
        was removed, or a clock was ahead when its last leader resigned.
        """
        item = await self._item()
        if item is None:
            await leaders.make_again(self._board)
            await self._added()
        elif is_ahead(item.ready, now=await self._board.table.now()):
            with suppress(Missing):  # it was removed meanwhile
                await edits.bring_back(self._board, self.name)

    async def _exchange(self) -> None:
        """Announces this candidate when it is time, and reads what others have sent."""
        now = self._clock.monotonic()
        every = self._state.times.check * (1 - JITTER)
        if self._announced is None or now - self._announced >= every:
            cycle, running = self._state.times.check, int(self.is_leader)
            self._member = replace(self._member, cycle=cycle, running=running)
            try:
                self._member = await announce(self._board, self._member)
            except BoardGone:
                await leaders.make_again(self._board)
                self._member = await announce(self._board, self._member)
            self._announced = now
        messages = await mail.fetch(self._board, self.owner)
        if messages:
            self._state = replace(self._state, others=await self._candidates())
        for message in messages:
            if message.id == self.name:
                await self._step(election.Received(message))
        for key, (message, late) in tuple(self._unfetched.items()):
            if now >= late:
                del self._unfetched[key]
                if await mail.take_back(self._board, key):
                    await self._step(election.Undelivered(message))

    async def _candidates(self) -> tuple[Identifier, ...]:
        """All other candidates that have announced themselves within a lease."""
        if self._others is None:
            longest = self._state.times.lease + self._board.table.resolution
            of_this = (one for one in await workers(self._board) if one.types == self.name)
            self._others = tuple(
                Identifier(candidate.rank, candidate.owner)
                for candidate in of_this
                if candidate.age <= longest and candidate.owner != self.owner
            )
            self._ranks = {other.owner: other.rank for other in self._others}
        return self._others

    async def _step(self, event: election.Event) -> None:
        done = election.step(self._state, event, now=self._clock.monotonic())
        self._state, self._stand = done.after, done.stand
        if not done.sends:
            return
        for key, message in (await mail.send(self._board, done.sends)).items():
            if self.kind is election.ElectionKind.RING and message.kind is MessageKind.ELECTION:
                late = self._clock.monotonic() + self._state.times.answer
                self._unfetched[key] = (message, late)

    # ---- the lock

    async def _look(self) -> Lock | Token | None:
        """The lock of the election, or its waiting token if that is ready. Where they are as they
        should be, none of other elections are read: there may be very many that are not entered any
        more.
        """
        table, partition = self._board.table, self._board.partition(self.name)
        found = await read(table, partition, lock_key(self.name))
        lock = readable(Lock, found, age=0.0 if found is None else table.age(found))
        if lock is not None:
            return lock
        until = await table.now()
        with suppress(BadRow):
            item = await self._item()
            if item is not None:
                if not item.waits or item.ready > until:
                    return None
                found = await read(table, partition, next_key(item.ready, self.name))
                if (token := readable(Token, found)) is not None:
                    return token
        async for row in self._board.walk(0, until=until):
            if row.id == self.name:
                return row
        return None

    def _leader_of(self, row: Lock | Token) -> str | None:
        """The holder of a lock that may not be taken; None: it may be taken."""
        if isinstance(row, Lock) and self._move(row) is not Move.OVERRIDE:
            return row.owner
        return None

    def _move(self, lock: Lock) -> Move:
        return decide_lock(
            lock,
            owner=self.owner,
            types={self.kind.value},
            in_flight=self._board.in_flight,
            resolution=self._board.table.resolution,
        )

    async def _take(self, row: Lock | Token) -> None:
        board = self._board
        taken: tuple[Claim, ...] = ()
        if isinstance(row, Lock):
            lock = await claims.override(board, row, owner=self.owner)
            taken = (lock,) if lock else ()
        else:
            settings = board.resolve(row.type, row.spec)
            now = await board.table.now()
            move = decide_token(row, now=now, types={self.kind.value}, settings=settings)
            if move is Move.RUN:
                done = await claims.claim(board, [row], owner=self.owner)
                if done.refused is not None:
                    raise done.refused
                taken = done.claims
        for claim in await claims.trusted(board, taken):
            await self._begin(claim)

    async def _found_own(self, lock: Lock) -> None:
        """Handles a lock of this candidate that it does not hold: adopts that of a claim that
        landed late, releases that of a term that is over.
        """
        if self._last is not None and lock.nonce == self._last.lost.claim.nonce:
            await self._release(self._last)
        elif self._move(lock) is Move.ADOPT:
            adopted = await claims.adopt(self._board, lock)
            for claim in await claims.trusted(self._board, [adopted] if adopted else []):
                await self._begin(claim)

    async def _begin(self, claim: Claim) -> None:
        """Begins a term."""
        self._last = Term(fence=claim.fence, lost=TermLost(claim, self._clock))
        self._go_by(claim.stale_after)
        self._won.set()
        if prunes_after(claim.fence, retention=RETENTION):
            await prune(self._board, self.name, retention=RETENTION)

    def _go_by(self, lease: float) -> None:
        """Lets checks follow this lease from now on, as far as an election may have it."""
        shortest = SHORTEST_LEASE.total_seconds()
        longest = LONGEST_ELECTION_LEASE.total_seconds()
        times = election.ElectionTimes(lease=min(max(shortest, lease), longest))
        self._state = replace(self._state, times=times)

    async def _renew(self, term: Term) -> None:
        renewed = await claims.renew(self._board, term.lost.claim)
        if term.lost:
            return  # its deadline has passed meanwhile
        if renewed is None:
            self._end(term, GONE)
        else:
            term.lost.claim = renewed

    async def _watch(self) -> None:
        """Ends a term at its deadline, also while no renewal is answered."""
        while True:
            await self._won.wait()
            while (term := self._term) is not None:
                left = term.lost.claim.deadline - self._clock.monotonic()
                await self._clock.sleep(max(left, 0.0))
            self._won.clear()

    def _end(self, term: Term, reason: str) -> None:
        term.lost.set(reason)
        self._won.clear()

    async def _resign(self) -> None:
        term = self._term
        if term is not None:
            self._end(term, RESIGNED)
            await self._release(term)

    async def _release(self, term: Term) -> None:
        """Releases the lock of a term that is over, so that it may be claimed at once. Without an
        answer it goes stale.
        """
        ended = Ended(outcome=Outcome.CANCELLED, error=term.lost.reason)
        finished = FinishedRun(claim=term.lost.claim, ended=ended, requeue=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._resigns_within):
                await release(self._board, [finished])


# ---- arguments, checked


def _checked_kind(kind: str) -> election.ElectionKind:
    try:
        return election.ElectionKind(kind)
    except ValueError:
        kinds = ", ".join(each.value for each in election.ElectionKind)
        raise BadInput("kind", f"there is no kind {quoted(kind)}", f"one of {kinds}") from None


def _check_timeout(timeout: float | None) -> None:
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and (not is_number or math.isnan(timeout)):
        raise BadInput("timeout", f"{quoted(timeout)} is no number of seconds", "such as 5 or 0.5")


def _checked_lease(lease: str | float | timedelta) -> timedelta:
    checked = duration_of(lease, "lease")
    check_election_lease(checked, "lease")
    return checked


def _checked_rank(rank: int, kind: election.ElectionKind) -> int:
    if type(rank) is not int or not 0 <= rank <= HIGHEST_RANK:
        raise BadInput("rank", f"{quoted(rank)} is out of range", f"0 to {HIGHEST_RANK}")
    if rank and kind is election.ElectionKind.MUTEX:
        raise BadInput("rank", "a mutex has no ranks: the first leads", 'kind="bully" or "ring"')
    return rank
