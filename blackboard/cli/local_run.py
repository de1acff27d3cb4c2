"""`blackboard run --here`: runs an item in this process, where a debugger can step through it.

A thread of its own makes and renews the claim, so that a handler that is stopped at a breakpoint
keeps its lock. The handler is called on the main thread, where debuggers and Ctrl-C work, without a
time limit. What it prints is kept with the run, too, and goes to stderr when stdout is for JSON;
writes that bypass `sys.stdout` (file descriptors, its own child processes) are neither redirected
nor kept. When its lock is lost, `ctx.lost` becomes true and a line on stderr says so. A process
that the handler forks ends when it returns.
"""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from typing import Any, TextIO, cast

import msgspec

from blackboard.board_worker import identity
from blackboard.cli.many import record
from blackboard.cli.output import echo_beside
from blackboard.cli.session import Session
from blackboard.display.escaping import one_line, shown
from blackboard.emitter import EventEmitter
from blackboard.errors import BadInput, BlackboardError
from blackboard.events import BoardEvent, LockLost, StoreEvent
from blackboard.handlers.context import Context, HandlerItem
from blackboard.handlers.handler import Handler
from blackboard.handlers.params import with_params
from blackboard.model import Ended, Item, Outcome, Token, replace
from blackboard.phrases import command, plural
from blackboard.protocol.actions import param_names
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim, claim, trusted
from blackboard.protocol.edits import run_now
from blackboard.protocol.keys import next_key
from blackboard.protocol.permits import limit_of, occupied
from blackboard.protocol.releases import FinishedRun, Released, release
from blackboard.protocol.rows import record_of, text_of
from blackboard.rules.breaker import Need
from blackboard.rules.transitions import requested
from blackboard.runners.handler_run import RunReport, context_of
from blackboard.runners.logs import emitting_info, kept_logs
from blackboard.runners.loop import log_masked, run_loop
from blackboard.runners.outcome import GOOD_EXIT, Notes, ended_by, failure, fitting_result
from blackboard.runners.output import Substitute, Tail, staying_alive
from blackboard.runners.resources import LoopResources, ProcessResources
from blackboard.runners.runner import RunData
from blackboard.runners.secrets import Mask, mask_of_worker
from blackboard.runners.signals import LoopSignal, ThreadSignal
from blackboard.table import read
from blackboard.tables.base import MAX_VALUE
from blackboard.tasks import cancel_all
from blackboard.why import permit_rows
from blackboard.worker.heartbeat import Heartbeat
from blackboard.worker.holdings import Holding, Holdings
from blackboard.worker.permits import Permits
from blackboard.worker.release_queue import HeldRenewals
from blackboard.worker.running import NO_PERMIT, given
from blackboard.worker.store_breaker import StoreBreaker

Save = Callable[[str], "Future[None]"]
"""Saves a checkpoint, JSON, from another thread."""

STOP_TIMEOUT = 5.0
"""Seconds in which the resources of a handler are closed."""
INTERRUPTED = Ended(outcome=Outcome.CANCELLED, error="interrupted")
"""The end of a run by Ctrl-C, or another signal to end."""


class LocalRun:
    """One run: the lock is held by a thread, the handler is called on the caller's thread. To the
    heartbeat it is an Execution that cannot be stopped, and to the handler a Reporter.
    """

    def __init__(self, session: Session, item: Item, *, once: dict[str, object]) -> None:
        """Raises BadInput when no handler takes the item's type."""
        handler = session.handlers.get(item.type)
        if handler is None:
            handled = ", ".join(sorted(session.handlers)) or "none"
            remedy = f"name it with --jobs; there are handlers for: {handled}"
            raise BadInput("jobs", f"no handler for {item.type!r}", remedy)
        self._session = session
        self._item = item
        self._once = once
        self._handler = handler
        self._console = sys.stderr
        """For lines about the run, which are not the handler's output."""
        self._lost = LoopSignal() if handler.is_async else ThreadSignal()
        self._notes = Notes()
        self._claimed: Future[tuple[Holding, Save]] = Future()
        """Set by the board's side: the run that it holds, and how its handler saves."""
        self._ended: Future[Ended] = Future()
        """Set by the caller's side: how the handler has ended."""
        self._released: Future[Released] = Future()
        """Set by the board's side: the run, written into the history."""

    def run(self) -> Released:
        """Claims, calls, releases. Raises BlackboardError when the item cannot be claimed."""
        threading.Thread(target=self._board_side, daemon=True).start()
        try:
            ended = self._call(*self._claimed.result())
        except KeyboardInterrupt:
            self._claimed.result()  # it may be claimed by now, and is given back then
            ended = INTERRUPTED
        self._ended.set_result(ended)
        return self._released.result()

    # ---- an Execution, for the heartbeat

    async def wait(self) -> Ended:
        return await asyncio.wrap_future(self._ended)

    def when_ended(self, call: Callable[[Ended], None]) -> None:
        self._ended.add_done_callback(lambda ended: call(ended.result()))

    def extend(self, deadline: float) -> None:
        """Does nothing: the heartbeat renews the lease."""

    def lose(self, reason: str) -> None:
        self._lost.set(reason)

    def ask_to_end(self, reason: str) -> None:
        """Does nothing: pumps alone are asked to end."""

    def stop(self, outcome: Outcome, reason: str) -> None:  # noqa: ARG002 - as the contract has it
        """Sets `ctx.lost` and prints the reason. The handler goes on: it may be in a debugger."""
        if not self._lost:
            self._lost.set(reason)
            echo_beside(f"blackboard: {one_line(reason)}", self._console)

    # ---- a Reporter, for the handler

    def called(self) -> None:
        """Does nothing: no time limit ends a run here."""

    def progress(self, done: int, total: int) -> None:
        held, _ = self._claimed.result()
        held.report_progress(done, total)

    def log(self, level: int, message: str) -> None:
        name = logging.getLevelName(level).lower()
        echo_beside(f"{name}: {one_line(message)}", self._console)

    async def save(self, checkpoint: str) -> None:
        _, save = self._claimed.result()
        await asyncio.wrap_future(save(checkpoint))

    # ---- the caller's side

    def _call(self, held: Holding, save: Save) -> Ended:
        """Calls the handler, and keeps what it prints, logs and reports. Values from the
        environment in its params are masked in all of it.
        """
        try:
            item, mask, checkpoint = given(held, os.environ, mask_of_worker(os.environ))
        except BadInput as problem:
            return Ended(outcome=Outcome.FAILED, error=str(problem))
        except Exception as problem:  # noqa: BLE001 - the board's side waits for an answer
            return Ended(outcome=Outcome.FAILED, error=failure(problem))
        handler, lost, claim, tail = self._handler, self._lost, held.claim, Tail()
        data = RunData(
            item=item,
            due=claim.slot,
            fence=claim.fence,
            attempt=claim.attempt,
            worker=claim.owner,
            settings=self._session.settings.jobs.get(claim.type, {}),
            fenced=claim.settings.fenced,
            checkpoint=checkpoint,
        )
        report = RunReport(
            mask, limit=data.limit, send=lambda message: self._notes.take(message, self)
        )

        def saved(value: Any) -> Any:
            checkpoint = report.checkpoint(value)
            return self.save(checkpoint) if handler.is_async else save(checkpoint).result()

        out, err = (
            cast(TextIO, staying_alive(_Kept(stream, tail, mask)))
            for stream in (sys.stderr if self._session.chosen.json else sys.stdout, sys.stderr)
        )
        with (
            redirect_stdout(out),
            redirect_stderr(err),
            kept_logs(report.log),
            emitting_info("azure"),
        ):
            stopping = type(lost)()
            context = context_of(data, report, save=saved, lost=lost, stopping=stopping)
            try:
                ended = self._end_of(item, context, mask)
            finally:  # a thread that waits for one would keep this process from ending
                for event in (lost, stopping):
                    event.set("the run has ended")
        report.end()
        return self._notes.added_to(ended, output=mask.output(tail.text()))

    def _end_of(self, item: HandlerItem, context: Context, mask: Mask) -> Ended:
        """Calls the handler. Returns how it has ended."""
        try:
            # As from a worker: the value as the row holds it.
            encoded = fitting_result(call(self._handler, item, context), mask, limit=MAX_VALUE)
        except KeyboardInterrupt:
            return INTERRUPTED
        except BaseException as problem:  # noqa: BLE001 - a handler may raise anything
            return ended_by(problem, mask)
        return Ended(outcome=Outcome.OK, result=msgspec.json.decode(encoded))

    # ---- the board's side

    def _board_side(self) -> None:
        try:
            self._released.set_result(asyncio.run(self._hold()))
        except BaseException as problem:  # noqa: BLE001 - it is raised where it is waited for
            waited_for = self._released if self._claimed.done() else self._claimed
            waited_for.set_exception(problem)

    async def _hold(self) -> Released:
        async with self._session.board() as board:
            holdings, events = Holdings(1), EventEmitter()
            events.subscribe(partial(_warn_of_loss, self._console))
            breaker = StoreBreaker(board.clock, board.chance, events)
            renewing = breaker.board(board, Need.RENEWAL)
            owner = identity(board.chance)
            permits = Permits(
                board=board, renewing=renewing, owner=owner, holdings=holdings, freed=lambda: None
            )
            try:
                holding = await self._taken(board, permits, owner=owner)
                holding.execution = self
                beat = Heartbeat(
                    board=renewing,
                    saving=breaker.board(board, Need.OTHER),
                    holdings=holdings,
                    events=events,
                )
                return await self._until_released(board, holding, beat, permits)
            finally:
                await permits.close()

    async def _taken(self, board: BoardTable, permits: Permits, *, owner: str) -> Holding:
        """The item, claimed, with a permit if its type needs one. Raises BlackboardError."""
        item = self._item
        once = text_of(self._once) if self._once else ""
        limit = limit_of(replace(item, once=once), board.resolve(item.type, item.spec))
        async with permits.asked({item.id: limit}) as grant:
            if limit is not None and not grant.allows(item.id) and not item.running:
                held = await occupied(board, limit)
                holders = ", ".join((*held.items, *permit_rows(board, held)))
                raise BlackboardError(
                    f"as many runs of {item.type} go on as its concurrency allows ({holders}): "
                    "`blackboard run` without --here lets this one wait for its turn"
                )
            holding = await claimed(board, item, once=self._once, owner=owner)
            permits.holdings.add(holding)
            if grant.hold(item.id, holding.claim.nonce):
                return holding
        ended = Ended(outcome=Outcome.CANCELLED, error=NO_PERMIT)
        back = FinishedRun(claim=holding.claim, ended=ended, requeue=True)
        await release(board, [back])
        raise BlackboardError(f"the store answered too late for {item.id}: a worker runs it")

    async def _until_released(
        self, board: BoardTable, holding: Holding, beat: Heartbeat, permits: Permits
    ) -> Released:
        """Keeps the lock and the permit while the handler is called; then releases the run."""
        loop = asyncio.get_running_loop()
        keeping = [
            loop.create_task(work)
            for work in (beat.run(), permits.keep_renewing(), permits.keep_giving_back())
        ]

        def save(checkpoint: str) -> Future[None]:
            return asyncio.run_coroutine_threadsafe(beat.save(holding, checkpoint), loop)

        self._claimed.set_result((holding, save))
        detail = ", ".join(["here", *param_names(self._once)])
        await record(self._session, board, "run", [self._item.id], detail=detail)
        ended = await asyncio.wrap_future(self._ended)
        holding.ended = True
        finished = FinishedRun(claim=holding.claim, ended=ended)
        try:
            return (await release(board, [finished], renewals=HeldRenewals([holding])))[0]
        finally:
            await cancel_all(keeping)


def call(handler: Handler, item: HandlerItem, context: Context) -> Any:
    """Calls a handler on this thread, a coroutine too."""
    item = with_params(item, handler.params)
    if handler.is_async:
        return run_loop(_called_on_loop(handler, item, context))
    resources, value = ProcessResources(), None  # of a good exit
    try:
        opened = resources.of(handler.type, handler.resources)
        with _forks_end(), GOOD_EXIT:
            value = handler.function(item, replace(context, resources=opened))
    finally:
        try:
            resources.close()
        except Exception as problem:  # noqa: BLE001 - as in a child process
            log_masked(partial(failure, problem), None)
    return value


async def _called_on_loop(handler: Handler, item: HandlerItem, context: Context) -> Any:
    resources = LoopResources()
    value = None  # of a good exit
    try:
        opened = await resources.of(handler.type, handler.resources)
        with _forks_end(), GOOD_EXIT:
            value = await handler.function(item, replace(context, resources=opened))
    finally:
        for problem in await resources.close(STOP_TIMEOUT):
            log_masked(partial(failure, problem), None)
    return value


@contextmanager
def _forks_end() -> Iterator[None]:
    """Ends a fork of this process that was made inside, and that has returned or raised."""
    own_pid = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != own_pid:
            os._exit(0)


async def claimed(
    board: BoardTable, item: Item, *, once: Mapping[str, object], owner: str
) -> Holding:
    """Makes the item due and claims it, as a worker does. Raises BlackboardError when it runs, is
    paused, or was claimed by a worker first; BadInput where the store refuses its rows.
    """
    if item.running:
        raise BlackboardError(f"{item.id} is being run by {item.owner}")
    params = text_of(once) if once else ""
    now = await board.table.now()
    if not item.is_paused and (ahead := requested(item, name="", once=params, now=now).ahead):
        raise BlackboardError(
            f"{item.id} has {plural(ahead, 'run')} to do first: `blackboard run` without --here "
            "adds this one to the queue"
        )
    asked = await run_now(board, item.id, once=dict(once))
    if asked.ahead:
        raise BlackboardError(
            f"{item.id} was asked to run meanwhile: a worker runs this request in its turn"
        )
    key = next_key(asked.item.ready, item.id)
    row = await read(board.table, board.partition(item.id), key)
    taken: tuple[Claim, ...] = ()
    if row is not None:
        token = record_of(Token, row)
        answer = await claim(board, [token], owner=owner)
        if answer.refused is not None:
            raise answer.refused
        taken = await trusted(board, answer.claims)
        if answer.claims and not taken:
            raise BlackboardError(
                f"the store answered too late for {item.id}: a worker runs it when its lock is "
                f"stale, or after {shown(command('unlock', item.id))}"
            )
    if not taken:
        raise BlackboardError(f"{item.id} was claimed by a worker before it could be run here")
    return Holding(claim=taken[0])


class _Kept(Substitute):
    """A stream whose tail is kept; both are masked."""

    def __init__(self, stream: TextIO, tail: Tail, mask: Mask) -> None:
        super().__init__(stream)
        self._tail = tail
        self._mask = mask

    def write(self, text: str) -> int:
        masked = self._mask.text(text)
        self._tail.add(masked.encode("utf-8", "backslashreplace"))
        super().write(masked)
        return len(text)


def _warn_of_loss(console: TextIO, event: BoardEvent) -> None:
    if isinstance(event, LockLost | StoreEvent):
        about = f"{event.id} " if isinstance(event, LockLost) else ""
        echo_beside(f"blackboard: {one_line(f'{about}{event.message}')}", console)
