"""The runs of a worker: started when they are claimed, each with the call of its handler.

A handler is called with its item's params, by its runner, within its time limit. What it reports is
emitted. Runs go on beside the walk and each other.
"""

import asyncio
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from blackboard.clock import Clock
from blackboard.emitter import EventEmitter
from blackboard.errors import BadInput
from blackboard.events import RunLogged, RunStarted
from blackboard.handlers.context import HandlerItem, decoded_checkpoint, expand, is_expanded
from blackboard.handlers.handler import Handler, Source
from blackboard.model import Ended, Outcome, replace
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim
from blackboard.protocol.keys import shard_of
from blackboard.rules.breaker import RESTARTS
from blackboard.rules.due import may_take_over, time_limit
from blackboard.runners.runner import HandlerCall, Runner
from blackboard.runners.secrets import Mask, mask_of_worker, values_in
from blackboard.schedule.times import format_duration
from blackboard.spec import params_of
from blackboard.worker.heartbeat import Heartbeat
from blackboard.worker.holdings import Holding, Holdings
from blackboard.worker.permits import LOST

NO_PERMIT = "put back: its claim was answered late, and its type has no permit left"
NO_SLOT = "put back: its claim was answered late, and no slot was free any more"


@dataclass(slots=True, kw_only=True)
class Runs:
    """The runs of one worker. It calls their handlers: coroutines on this loop, plain functions in
    child processes.
    """

    board: BoardTable
    handlers: Mapping[str, Handler]
    settings: Mapping[str, Mapping[str, Any]]
    """`[jobs.TYPE]` of every type."""
    inline: Runner
    process: Runner
    events: EventEmitter
    holdings: Holdings
    heartbeat: Heartbeat
    ended: Callable[[Holding, Ended], None]
    """Called with each run that has ended, or was not begun."""
    starts_again: Callable[[], None]
    """Called when child processes can be started again."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    waits: bool = False
    """Whether runs wait until child processes can be started. Where not, a run for which none can
    be started fails, because it is a pump: its partition is this worker's, which would take it
    again at once."""
    _limits: "TimeLimits" = field(init=False)
    _mask: Mask = field(init=False)
    """The mask of runs without secrets of their own."""
    _losses: dict[str, tuple[datetime, int]] = field(default_factory=dict)
    """How often in a row the run of an item has lost its lock, and the slot that it was for."""
    _probing: asyncio.Task[None] | None = None
    """Tries to start a child process, after none could be started."""
    _lacking: tuple[float, str] = (math.inf, "")
    """Since when none could be started and no run in one has ended, in monotonic seconds, and the
    last reason: a try may succeed, and the run that follows not begin.
    """
    _failures: int = 0
    """Tries in vain that followed each other closely."""
    _started: float = -math.inf
    """When the last such try succeeded, in monotonic seconds."""

    def __post_init__(self) -> None:
        self._limits = TimeLimits(self.board.clock)
        self._mask = mask_of_worker(self.environ)

    def start(self, claims: Sequence[Claim]) -> None:
        """Runs claims, beside everything else. A claim without a slot is put back: it was answered
        late, other runs have taken the slot meanwhile, or the worker is to stop.
        """
        for claim in claims:
            held, has_slot = self._hold(claim)
            if has_slot:
                self._start(held)
            else:
                self.ended(held, Ended(outcome=Outcome.CANCELLED, error=NO_SLOT))
        if claims:
            self.heartbeat.beat()  # a watchdog has to allow for the new leases before they run

    def put_back(self, claim: Claim) -> None:
        """Releases a claim that may not run now: its item is due again at once."""
        held, _ = self._hold(claim)
        self.ended(held, Ended(outcome=Outcome.CANCELLED, error=NO_PERMIT))

    def _hold(self, claim: Claim) -> tuple[Holding, bool]:
        """Holds a claim, and reports it. Returns also whether there was a slot for it."""
        held = Holding(claim=claim, shard=shard_of(claim.id, self.board.shards))
        has_slot = self.holdings.add(held)
        self.events.emit_of(claim, RunStarted, due=claim.slot, attempt=claim.attempt)
        return held, has_slot

    def _start(self, held: Holding) -> None:
        """Calls the handler of a run. `ended` is called once, with its outcome; at once where it
        cannot be called. Never raises.
        """
        call = self._call(held)
        if isinstance(call, Ended):
            self.ended(held, call)
            return
        runner = self.inline if call.handler.is_async else self.process
        report = _Report(held, self.events, self.heartbeat, self._limits, call.allowed)
        held.execution = runner.start(call, report, held.claim.deadline)
        held.execution.when_ended(lambda how: self.ended(held, self._of_begun(call, report, how)))
        held.pass_on()

    def paused_types(self) -> frozenset[str]:
        """The types of which no run is claimed now, because no child process can be started."""
        if not self._is_probing:
            return frozenset()
        return frozenset(name for name, handler in self.handlers.items() if not handler.is_async)

    def _of_begun(self, call: HandlerCall, report: "_Report", how: Ended) -> Ended:
        """How a run ended. One whose process was asked to end together with this worker is put
        back. So is one for which no process could be started, for other workers: this one claims
        none that needs a process until one can be started. It finds that out without a claim, so
        what is due becomes overdue, unless others run it.
        """
        self._limits.drop(report.held)
        now = self.board.clock.monotonic()
        if how.begun and not call.handler.is_async:
            self._lacking = (now if self._is_probing else math.inf), self._lacking[1]
        if how.terminated and self.holdings.slots.closed:
            error = f"stopped: the worker is stopping, and {how.error}"
            how = replace(how, outcome=Outcome.CANCELLED, error=error)
        if how.begun or not self.waits:
            return self._of_lost(report.held, how)
        if not self._is_probing:
            is_new = now - self._started >= RESTARTS.longest
            report.log(logging.ERROR, f"{how.error}; runs that need one wait until it can be")
            self._lacking = (now if is_new else min(self._lacking[0], now)), how.error
            probing = self._probe(call.handler.source)
            self._probing = asyncio.get_running_loop().create_task(probing)
            self._probing.add_done_callback(lambda _: self.starts_again())
        return replace(how, outcome=Outcome.CANCELLED, error=f"put back: {how.error}")

    def _of_lost(self, held: Holding, how: Ended) -> Ended:
        """How a run ended that may have lost its lock, or its permit. One that has is put back as
        often in a row as it would be taken over, and fails then: it may be what keeps its worker
        from renewing, as one that takes all memory. A pump is always put back.
        """
        claim = held.claim
        has_answered = how.final or how.retry_after is not None
        if held.lost and how.outcome is Outcome.FAILED and not has_answered:
            how = held.as_stopped(how)
        slot, losses = self._losses.pop(claim.id, (claim.slot, 0))
        is_cancelled = how.outcome is Outcome.CANCELLED and not how.terminated
        has_lost = is_cancelled and held.cut in {"", held.lost, LOST}
        if not has_lost or claim.settings.endless:
            return how
        losses = losses + 1 if slot == claim.slot else 1
        if not may_take_over(losses, retries=claim.settings.retries):
            return replace(how, outcome=Outcome.FAILED)
        self._losses[claim.id] = claim.slot, losses
        return how

    def no_process(self, seconds: float) -> str:
        """Why no child process could be started for so many seconds; "": it is not as long."""
        since, problem = self._lacking
        is_long = self._is_probing and self.board.clock.monotonic() - since >= seconds
        return problem if is_long else ""

    @property
    def _is_probing(self) -> bool:
        return self._probing is not None and not self._probing.done()

    async def _probe(self, source: Source) -> None:
        """Tries to start a child process until one can be."""
        if self.board.clock.monotonic() - self._started >= RESTARTS.longest:
            self._failures = 0
        while True:
            self._failures += 1
            await self.board.clock.sleep(RESTARTS.pause(self._failures))
            if await self.process.can_start(source):
                break
        self._started = self.board.clock.monotonic()

    def _call(self, held: Holding) -> HandlerCall | Ended:
        """The call of a handler, or why there is none."""
        claim = held.claim
        handler = self.handlers.get(claim.type)
        if handler is None:  # its lock named a type that is taken here, its item another
            return Ended(outcome=Outcome.FAILED, error=f"no handler here for {claim.type!r}")
        try:
            item, mask, checkpoint = given(held, self.environ, self._mask)
            allowed = time_limit(claim.settings, claim.slot)
        except BadInput as problem:
            return Ended(outcome=Outcome.FAILED, error=str(problem))
        except Exception as problem:  # noqa: BLE001 - one odd row must not end the worker
            return Ended(outcome=Outcome.FAILED, error=f"it could not be called: {problem!r}")
        return HandlerCall(
            handler=handler,
            item=item,
            due=claim.slot,
            fence=claim.fence,
            attempt=claim.attempt,
            worker=claim.owner,
            settings=self.settings.get(claim.type, {}),
            fenced=claim.settings.fenced,
            mask=mask,
            limit=self.board.table.max_value,
            checkpoint=checkpoint,
            allowed=None if allowed is None else allowed.total_seconds(),
        )

    async def close(self) -> None:
        self._limits.close()
        self.waits = False
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait([self._probing])
        await self.inline.close()
        await self.process.close()


class TimeLimits:
    """Stops runs that take longer than they may: one task for all of them, because hardly any
    does.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[Holding, tuple[float, float]] = {}
        """Until when each run may go on, in monotonic seconds, and for how long that is."""
        self._wakes = math.inf
        """When the task looks again."""
        self._task: asyncio.Task[None] | None = None

    def add(self, held: Holding, allowed: float) -> None:
        """Limits a run to so many seconds from now on."""
        until = self._clock.monotonic() + allowed
        self._until[held] = until, allowed
        if self._task is None or self._task.done() or until < self._wakes:
            self.close()
            self._wakes = until
            self._task = asyncio.get_running_loop().create_task(self._keep_stopping())

    def drop(self, held: Holding) -> None:
        """Forgets a run that has ended."""
        self._until.pop(held, None)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _keep_stopping(self) -> None:
        while self._until:
            self._wakes = min(until for until, _ in self._until.values())
            await self._clock.sleep(max(self._wakes - self._clock.monotonic(), 0.0))
            self._stop_late()

    def _stop_late(self) -> None:
        now = self._clock.monotonic()
        late = [(held, allowed) for held, (until, allowed) in self._until.items() if until <= now]
        for held, allowed in late:
            self.drop(held)
            if held.execution is not None:
                longest = format_duration(timedelta(seconds=allowed))
                held.execution.stop(Outcome.TIMEOUT, f"it ran longer than {longest}")


def given(held: Holding, environ: Mapping[str, str], mask: Mask) -> tuple[HandlerItem, Mask, Any]:
    """The item as its handler gets it, the mask for all that the handler reports, and the
    checkpoint where the run goes on. `mask` is that of the worker.

    Raises BadInput naming a variable that `environ` lacks, or a value that cannot be given to a
    handler.
    """
    claim = held.claim
    params = written = params_of(claim.spec, claim.item.once)
    if is_expanded(claim.spec) or is_expanded(claim.item.once):
        params = expand(written, environ)
        if params != written:
            mask = mask.of_run(values_in(written, environ))
    item = HandlerItem(
        id=claim.id,
        type=claim.type,
        params=params,
        timezone=claim.settings.timezone,
        written=written if params != written else None,
    )
    return item, mask, decoded_checkpoint(claim.item.checkpoint)


class _Report(Struct, frozen=True):
    """What a handler reports while it runs, masked by its runner."""

    held: Holding
    events: EventEmitter
    heartbeat: Heartbeat
    limits: TimeLimits
    allowed: float | None

    def called(self) -> None:
        if self.allowed is not None:
            self.limits.add(self.held, self.allowed)

    def progress(self, done: int, total: int) -> None:
        self.held.report_progress(done, total)

    async def save(self, checkpoint: str) -> None:
        await self.heartbeat.save(self.held, checkpoint)

    def log(self, level: int, message: str) -> None:
        self.events.emit_of(self.held.claim, RunLogged, message=message, level=level)
