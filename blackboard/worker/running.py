"""The runs of a worker, from claim to release: the slots they take, the calls of their handlers.

A worker holds the runs that it has started and not yet released. A run takes a slot from its claim
until its release is written. It takes none when its claim was answered so late that other runs have
the slots, and none any more when its release takes long. A claim under way reserves its slots by
shard; they are given to other claims when the shard is late.

A handler is called with its item's params, by its runner, within its time limit. What it reports is
emitted. Runs go on beside the walk and each other.
"""

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from blackboard.clock import Clock
from blackboard.context import HandlerItem, decoded_checkpoint, expand, is_expanded
from blackboard.errors import BadInput
from blackboard.events import Events, RunLogged, RunStarted
from blackboard.handlers import Handler
from blackboard.model import Claim, Ended, Outcome
from blackboard.protocol.keys import shard_of
from blackboard.protocol.permits import Limit
from blackboard.protocol.rows import text_of
from blackboard.rules.due import deadline, renew_every, time_limit
from blackboard.runner import Execution, HandlerCall, Runner
from blackboard.runners.secrets import NOTHING, Mask, mask_of
from blackboard.schedule.durations import format_duration
from blackboard.spec import RunSettings, params_of
from blackboard.tables.base import MAX_VALUE

RELEASING_SHARE = 0.5
"""The part of a lease after which a lock is renewed although its release is under way. Whichever
lands first, the other is refused and settled.
"""
PROGRESS_EVERY = 5.0
"""Seconds between two writes of a run's progress, at the least."""
MOST_GIVEN_UP = 10_000
"""Runs that could not be released, whose nonces are kept: their locks are gone long before."""
MANY_LIMITS = 1_000
"""Time limits that are kept before those of runs that have ended are dropped."""
NO_PERMIT = "put back: its claim was answered late, and its type has no permit left"
NO_SLOT = "put back: its claim was answered late, and no slot was free any more"


# ---- slots


class FreeSlots:
    """The free slots of a worker, counted down as runs are chosen for them."""

    def __init__(
        self,
        total: int,
        running: Counter[str],
        *,
        permits: Counter[tuple[str, str]] | None = None,
        exhausted: Container[tuple[str, str]] = (),
        times: int = 1,
    ) -> None:
        """`running` has the slots taken by each type, `permits` those of each limit of the board,
        `exhausted` the limits of which there are no more. All that is free counts so many `times`.
        """
        self._running = running
        self._permits = Counter[tuple[str, str]]() if permits is None else permits
        self._exhausted = exhausted
        self._times = times
        self._taken = Counter[str]()
        self._limited = Counter[tuple[str, str]]()
        self.left = max(total - running.total(), 0) * times

    def take(self, item_type: str, most: int | None, limit: Limit | None = None) -> bool:
        """Take a slot, if one is free and the type has fewer than `most`, and its `limit` on the
        board may have a permit; None: there is no such limit.
        """
        if self.left <= 0:
            return False
        if most is not None:
            free = (most - self._running[item_type]) * self._times
            if self._taken[item_type] >= free:
                return False
        if limit is not None:
            free = (limit.most - self._permits[limit.name]) * self._times
            if limit.name in self._exhausted or self._limited[limit.name] >= free:
                return False
            self._limited[limit.name] += 1
        self.left -= 1
        self._taken[item_type] += 1
        return True


class Slots:
    """The slots of a worker, and what takes them."""

    def __init__(self, total: int) -> None:
        self.total = total
        """How many there are; none once the worker is to stop."""
        self._occupied: dict[str, str] = {}
        """The type of each run that has a slot, by its nonce."""
        self._running = Counter[str]()
        """The slots that each type takes."""
        self._reserved: dict[int, Counter[str]] = {}
        """The types of what is being claimed, by shard."""

    def close(self) -> None:
        """Let no further run begin."""
        self.total = 0

    def free(
        self,
        permits: Counter[tuple[str, str]] | None = None,
        exhausted: Container[tuple[str, str]] = (),
        *,
        times: int = 1,
    ) -> FreeSlots:
        """The slots that no run takes and that are not reserved, for runs within the limits of the
        board; so many `times`.
        """
        running = self._running.copy()
        for types in self._reserved.values():
            running += types
        return FreeSlots(self.total, running, permits=permits, exhausted=exhausted, times=times)

    def occupy(self, nonce: str, item_type: str, most: int | None) -> bool:
        """Take a slot for a claimed run, also a reserved one: the first claim that is answered has
        it. Returns whether there was one.
        """
        if len(self._occupied) >= self.total:
            return False
        if most is not None and self._running[item_type] >= most:
            return False
        self._occupied[nonce] = item_type
        self._running[item_type] += 1
        return True

    def has(self, nonce: str) -> bool:
        """Whether a run has a slot."""
        return nonce in self._occupied

    def vacate(self, nonce: str) -> None:
        """Free the slot of a run, if it has one."""
        item_type = self._occupied.pop(nonce, None)
        if item_type is not None:
            self._running[item_type] -= 1

    def reserve(self, shard: int, types: Iterable[str]) -> None:
        """Keep slots for what is being claimed in a shard."""
        self._reserved[shard] = Counter(types)

    def unreserve(self, shard: int) -> None:
        """Its claims are answered, or are not waited for any more."""
        self._reserved.pop(shard, None)


# ---- what is held


@dataclass(slots=True, kw_only=True, eq=False)
class Holding:
    """One run: its claim, renewed over time, and its handler under way."""

    claim: Claim
    settings: RunSettings
    """Of the spec that the claim has: a save may find the item edited."""
    shard: int = 0
    """Of its item."""
    execution: Execution | None = None
    progress: str = ""
    progress_written: str = ""
    """The progress that the lock carries."""
    asked: float | None = None
    """Since when a renewal has been asked for without an answer, in monotonic seconds."""
    asking: bool = False
    """Whether a task is at its renewal."""
    saving: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a checkpoint is saved: the next save states the etag that this one leaves."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while no renewal is with the store."""
    ended: bool = False
    """The handler has ended. The lock is renewed until the release is acknowledged."""
    releasing: bool = False
    """A release that states the lock's etag is under way: the lock is renewed at need only."""
    lost: str = ""
    """Why the lock is not this worker's any more."""
    asked_to_end: str = ""
    """Why a pump is to save and return."""
    cut: str = ""
    """Why the run is to be stopped before its end."""

    def __post_init__(self) -> None:
        self.answered.set()

    @property
    def deadline(self) -> float:
        """Until when the lock may be trusted, in monotonic seconds."""
        return deadline(self.claim.sent, self.claim.stale_after)

    def renewal_due(self, now: float) -> bool:
        """Whether it is time to touch the lock, for its lease or to write progress."""
        waited = now - self.claim.sent
        if self.releasing:
            return waited >= RELEASING_SHARE * self.claim.stale_after
        has_progress = self.progress != self.progress_written and waited >= PROGRESS_EVERY
        return has_progress or waited >= renew_every(self.claim.stale_after)

    def end(self) -> None:
        """Note that the handler has ended, and keep nothing that refers back to this."""
        self.ended = True
        self.execution = None

    def report_progress(self, done: int, total: int) -> None:
        self.progress = text_of([done, total])

    def lose(self, reason: str) -> None:
        """Report to the handler that its lock is lost. The first reason counts."""
        self.lost = self.lost or reason
        self.pass_on()

    def ask_to_end(self, reason: str) -> None:
        """Ask a pump to save and return."""
        self.asked_to_end = self.asked_to_end or reason
        self.pass_on()

    def cut_short(self, reason: str) -> None:
        """Stop the handler; its item is due again at once, if the lock is still this worker's."""
        self.cut = self.cut or reason
        self.pass_on()

    def pass_on(self) -> None:
        """Report a lost lock or a stop to the handler, if it has been called."""
        if self.execution is None:
            return
        if self.lost:
            self.execution.lose(self.lost)
        if self.asked_to_end:
            self.execution.ask_to_end(self.asked_to_end)
        if self.cut:
            self.execution.stop(Outcome.CANCELLED, f"stopped: {self.cut}")


def _ignored(_nonce: str) -> None:
    """What is called where nothing is to be done."""


class Holdings:
    """All runs that a worker holds, by the nonce of their claims."""

    def __init__(self, slots: int) -> None:
        self.slots = Slots(slots)
        self.given_up = Latest(MOST_GIVEN_UP)
        """Nonces of runs that ended and could not be released: their locks are left to go stale."""
        self.changed = asyncio.Event()
        """Set when a run was released, or a claim that was answered late is settled."""
        self.released: Callable[[str], None] = _ignored
        """Called with the nonce of each run that is held no longer."""
        self._held: dict[str, Holding] = {}

    def __iter__(self) -> Iterator[Holding]:
        return iter(tuple(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    def add(self, holding: Holding) -> bool:
        """Hold a run. Returns whether there was a slot for it."""
        claim = holding.claim
        self._held[claim.nonce] = holding
        return self.slots.occupy(claim.nonce, claim.type, holding.settings.slots)

    def release(self, nonce: str) -> None:
        """Hold a run no longer, and free its slot."""
        del self._held[nonce]
        self.slots.vacate(nonce)
        self.released(nonce)

    @property
    def frees_slots(self) -> bool:
        """Whether runs have ended whose slots are free once they are released."""
        return any(one.ended and self.slots.has(nonce) for nonce, one in self._held.items())

    @property
    def nonces(self) -> set[str]:
        return set(self._held)

    @property
    def ids(self) -> set[str]:
        """The items whose runs are held."""
        return {one.claim.id for one in self._held.values()}


class Latest(Collection[str]):
    """The latest names that were added, `most` of them; what was added longest ago goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: dict[str, None] = {}

    def add(self, name: str) -> None:
        self._names.pop(name, None)
        self._names[name] = None
        if len(self._names) > self._most:
            del self._names[next(iter(self._names))]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


# ---- starting runs, and calling handlers


class Taken(NamedTuple):
    """What is to be run: a claim, and the settings that it was claimed with."""

    claim: Claim
    settings: RunSettings


@dataclass(slots=True, kw_only=True)
class Runs:
    """The runs of one worker."""

    holdings: Holdings
    calls: "Calls"
    events: Events
    shards: int
    started: Callable[[], None]
    """Called when runs have begun."""
    ended: Callable[[Holding, Ended], None]
    """Called with each run that has ended, or was not begun."""

    def start(self, taken: Sequence[Taken]) -> None:
        """Run what was claimed, beside everything else. What has no slot is put back: it was
        claimed late, other runs have taken the slot meanwhile, or the worker is to stop.
        """
        for claim, settings in taken:
            shard = shard_of(claim.id, self.shards)
            held = Holding(claim=claim, settings=settings, shard=shard)
            if self.holdings.add(held):
                self.calls.start(held, partial(self.ended, held))
            else:
                self.ended(held, Ended(outcome=Outcome.CANCELLED, error=NO_SLOT))
            self.events.emit_of(claim, RunStarted, due=claim.slot, attempt=claim.attempt)
        if taken:
            self.started()

    def put_back(self, taken: Taken) -> None:
        """Release what was adopted and may not run now: it is due again at once."""
        claim, settings = taken
        shard = shard_of(claim.id, self.shards)
        held = Holding(claim=claim, settings=settings, shard=shard)
        self.holdings.add(held)
        self.ended(held, Ended(outcome=Outcome.CANCELLED, error=NO_PERMIT))


@dataclass(slots=True, kw_only=True)
class Calls:
    """Calls handlers: coroutines on this loop, plain functions in child processes."""

    handlers: Mapping[str, Handler]
    settings: Mapping[str, Mapping[str, Any]]
    """`[jobs.TYPE]` of every type."""
    inline: Runner
    process: Runner
    events: Events
    clock: Clock
    save: Callable[["Holding", str], Awaitable[None]]
    """Saves the checkpoint of a run. Raises LeaseLost, BlackboardError."""
    limit: int = MAX_VALUE
    """Characters of JSON that a result, or a checkpoint, may have."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _limits: "TimeLimits" = field(init=False)

    def __post_init__(self) -> None:
        self._limits = TimeLimits(self.clock)

    def start(self, held: Holding, ended: Callable[[Ended], None]) -> None:
        """Call the handler of a claimed run. `ended` is called once, with whatever end it comes to;
        at once where it cannot be called. Never raises.
        """
        prepared = self._call(held)
        if isinstance(prepared, Ended):
            ended(prepared)
            return
        call, allowed = prepared
        runner = self.inline if call.handler.is_async else self.process
        held.execution = runner.start(call, _Report(held, self.events, self.save), held.deadline)
        held.execution.when_ended(ended)
        held.pass_on()
        if allowed is not None:
            self._limits.add(held, allowed)

    def _call(self, held: Holding) -> tuple[HandlerCall, timedelta | None] | Ended:
        """The call of a handler, and how long it may take; or why there is none."""
        claim = held.claim
        handler = self.handlers.get(claim.type)
        if handler is None:  # its lock named a type that is taken here, its item another
            return Ended(outcome=Outcome.FAILED, error=f"no handler here for {claim.type!r}")
        try:
            item, mask, checkpoint = given(held, self.environ)
            allowed = time_limit(held.settings, claim.slot)
        except BadInput as problem:
            return Ended(outcome=Outcome.FAILED, error=str(problem))
        except RecursionError:
            return Ended(outcome=Outcome.FAILED, error="params or checkpoint: nested too deeply")
        except Exception as problem:  # noqa: BLE001 - one odd row must not end the worker
            return Ended(outcome=Outcome.FAILED, error=f"it could not be called: {problem!r}")
        call = HandlerCall(
            handler=handler,
            item=item,
            due=claim.slot,
            fence=claim.fence,
            attempt=claim.attempt,
            worker=claim.owner,
            settings=self.settings.get(claim.type, {}),
            fenced=held.settings.fenced,
            mask=mask,
            limit=self.limit,
            checkpoint=checkpoint,
        )
        return call, allowed

    async def close(self) -> None:
        self._limits.close()
        await self.inline.close()
        await self.process.close()


class TimeLimits:
    """Stops runs that take longer than they may: one task for all of them, because hardly any
    does.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all: list[tuple[float, int, Holding, timedelta]] = []
        """A heap: until when, in monotonic seconds; in which order they were added."""
        self._count = itertools.count()
        self._many = MANY_LIMITS
        self._task: asyncio.Task[None] | None = None

    def add(self, held: Holding, allowed: timedelta) -> None:
        """From now on the run may take so long."""
        until = self._clock.monotonic() + allowed.total_seconds()
        if len(self._all) >= self._many:
            self._all = [one for one in self._all if not one[2].ended]
            self._many = max(MANY_LIMITS, 2 * len(self._all))
            heapify(self._all)
        heappush(self._all, (until, next(self._count), held, allowed))
        if self._task is None or self._task.done() or self._all[0][2] is held:
            self.close()
            self._task = asyncio.get_running_loop().create_task(self._stop_late())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _stop_late(self) -> None:
        while self._all:
            until, _, held, allowed = self._all[0]
            left = until - self._clock.monotonic()
            if left > 0 and not held.ended:
                await self._clock.sleep(left)
                continue
            heappop(self._all)
            if not held.ended and held.execution is not None:
                text = f"it ran longer than {format_duration(allowed)}"
                held.execution.stop(Outcome.TIMEOUT, text)


def given(held: Holding, environ: Mapping[str, str]) -> tuple[HandlerItem, Mask, Any]:
    """The item as its handler gets it, the mask for all that the handler reports, and where the run
    goes on.

    Raises BadInput naming a variable that `environ` lacks, or what cannot be given to a handler.
    """
    claim = held.claim
    params = written = params_of(claim.spec, claim.once)
    mask = NOTHING
    if is_expanded(claim.spec) or is_expanded(claim.once):
        params = expand(written, environ)
        if params != written:
            mask = mask_of(written, environ)
    item = HandlerItem(
        id=claim.id,
        type=claim.type,
        params=params,
        timezone=held.settings.timezone,
        written=written if params != written else None,
    )
    return item, mask, decoded_checkpoint(claim.item.checkpoint)


@dataclass(frozen=True, slots=True)
class _Report:
    """What a handler reports while it runs, masked by its runner."""

    held: Holding
    events: Events
    saving: Callable[[Holding, str], Awaitable[None]]

    def progress(self, done: int, total: int) -> None:
        self.held.report_progress(done, total)

    async def save(self, checkpoint: str) -> None:
        await self.saving(self.held, checkpoint)

    def log(self, level: int, message: str) -> None:
        self.events.emit_of(self.held.claim, RunLogged, message=message, level=level)
