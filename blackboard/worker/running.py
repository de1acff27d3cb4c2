"""Calling a handler for a claim: its params, its runner, its time limit, what it reports.

What a worker holds: the runs it has started and not yet let go.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from blackboard.clock import Clock
from blackboard.context import HandlerItem, expand
from blackboard.errors import BadInput
from blackboard.events import Events, Kind
from blackboard.handlers import Handler
from blackboard.latest import Latest
from blackboard.model import Claim, Ended, Outcome
from blackboard.protocol.rows import text_of
from blackboard.rules.due import deadline, renew_every, time_limit
from blackboard.runner import Call, Execution, Runner
from blackboard.runners.secrets import NOTHING, Mask, mask_of
from blackboard.schedule.durations import format_duration
from blackboard.spec import RunSettings, params_of
from blackboard.tables.checks import MAX_VALUE

RELEASING_SHARE = 0.5
"""The part of a lease after which a lock is renewed although its release is under way. Whichever
lands first, the other is refused and settled.
"""
PROGRESS_EVERY = 5.0
"""Seconds between two writes of a run's progress, at the least."""
MOST_GIVEN_UP = 10_000
"""Runs that could not be let go, of which it is remembered: their locks are gone long before."""


@dataclass(slots=True, kw_only=True, eq=False)
class Holding:
    """One run: its claim, renewed over time, and its handler under way."""

    claim: Claim
    settings: RunSettings
    shard: int = 0
    """Of its item."""
    execution: Execution | None = None
    progress: str = ""
    told: str = ""
    """The progress that the lock carries."""
    asked: float | None = None
    """Since when a renewal has been asked for without an answer, in monotonic seconds."""
    asking: bool = False
    """Whether somebody is at its renewal."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while no renewal is with the store."""
    ended: bool = False
    """The handler has ended. The lock is renewed until the release is acknowledged."""
    releasing: bool = False
    """A release that states the lock's etag is under way: the lock is renewed at need only."""
    stuck: bool = False
    """Its release takes so long that its slot is given to others."""
    lost: str = ""
    """Why the lock is not ours any more."""
    cut: str = ""
    """Why the run is to be stopped before its end."""

    def __post_init__(self) -> None:
        self.answered.set()

    @property
    def deadline(self) -> float:
        """Until when the lock may be trusted, in monotonic seconds."""
        return deadline(self.claim.sent, self.claim.stale_after)

    def renewal_due(self, now: float) -> bool:
        """Whether it is time to touch the lock, for its lease or for news of its progress."""
        waited = now - self.claim.sent
        if self.releasing:
            return waited >= RELEASING_SHARE * self.claim.stale_after
        news = self.progress != self.told and waited >= PROGRESS_EVERY
        return news or waited >= renew_every(self.claim.stale_after)

    def report_progress(self, done: int, total: int) -> None:
        self.progress = text_of([done, total])

    def lose(self, reason: str) -> None:
        """Tell the handler that its lock is gone. Whoever says it first gives the reason."""
        self.lost = self.lost or reason
        self.pass_on()

    def cut_short(self, reason: str) -> None:
        """Stop the handler; its item is due again at once, if the lock is still ours."""
        self.cut = self.cut or reason
        self.pass_on()

    def pass_on(self) -> None:
        """Tell the handler what there is to tell, as soon as it has been called."""
        if self.execution is None:
            return
        if self.lost:
            self.execution.lose(self.lost)
        if self.cut:
            self.execution.stop(Outcome.CANCELLED, f"stopped: {self.cut}")


@dataclass(slots=True)
class Holdings:
    """All of them, by the nonce of their claims."""

    slots: int
    """As many at a time; none once the worker is to stop."""
    given_up: Latest = field(default_factory=lambda: Latest(MOST_GIVEN_UP))
    """Nonces of runs that ended and could not be let go: their locks are left to go stale."""
    reserved: dict[int, Counter[str]] = field(default_factory=dict)
    """By shard: the types of what is being claimed in it."""
    _held: dict[str, Holding] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Holding]:
        return iter(tuple(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    def add(self, holding: Holding) -> None:
        self._held[holding.claim.nonce] = holding

    def release(self, nonce: str) -> None:
        del self._held[nonce]

    @property
    def nonces(self) -> set[str]:
        return set(self._held)

    @property
    def free(self) -> int:
        """Slots that nothing runs in, and that nothing is being claimed for."""
        return max(self.slots - self.running.total(), 0)

    @property
    def running(self) -> Counter[str]:
        """How many slots each type takes."""
        running = self.held
        for types in self.reserved.values():
            running += types
        return running

    @property
    def held(self) -> Counter[str]:
        """How many slots each type takes without those that are kept for claims under way."""
        return Counter(held.claim.type for held in self._held.values() if not held.stuck)

    def reserve(self, shard: int, types: Iterable[str]) -> None:
        """Keep slots for what is being claimed in a shard."""
        self.reserved[shard] = Counter(types)

    def unreserve(self, shard: int) -> None:
        """Its claims are answered, or are not waited for any more."""
        self.reserved.pop(shard, None)


class Room:
    """The free slots of a worker, counted down as tokens are chosen."""

    def __init__(self, holdings: Holdings, *, claimed: bool = False) -> None:
        """For what is claimed already, those too that are kept for claims under way: the first that
        is answered has them.
        """
        self._running = holdings.held if claimed else holdings.running
        self._free = max(holdings.slots - self._running.total(), 0)

    def __bool__(self) -> bool:
        return self._free > 0

    def take(self, item_type: str, settings: RunSettings) -> bool:
        """Take a slot, if the worker and the type have one."""
        full = settings.slots is not None and self._running[item_type] >= settings.slots
        if full or self._free <= 0:
            return False
        self._free -= 1
        self._running[item_type] += 1
        return True


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
    limit: int = MAX_VALUE
    """Characters of JSON that a result may have."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    async def run(self, held: Holding) -> Ended:
        """One run, from its claim to whatever end. Never raises."""
        claim = held.claim
        handler = self.handlers.get(claim.type)
        if handler is None:  # its lock named a type that is taken here, its item another
            return Ended(outcome=Outcome.FAILED, error=f"no handler here for {claim.type!r}")
        try:
            item, mask = given(held, self.environ)
            allowed = time_limit(held.settings, claim.slot)
        except BadInput as problem:
            return Ended(outcome=Outcome.FAILED, error=str(problem))
        except RecursionError:
            return Ended(outcome=Outcome.FAILED, error="params: nested too deeply")
        except Exception as problem:  # noqa: BLE001 - one odd row must not end the worker
            return Ended(outcome=Outcome.FAILED, error=f"it could not be called: {problem!r}")
        call = Call(
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
        )
        runner = self.inline if handler.is_async else self.process
        held.execution = runner.start(call, _Report(held, self.events), held.deadline)
        held.pass_on()
        limit = asyncio.get_running_loop().create_task(self._limit(held, allowed))
        try:
            return await held.execution.wait()
        finally:
            limit.cancel()

    async def _limit(self, held: Holding, allowed: timedelta) -> None:
        """Stop a run that takes longer than it may."""
        await self.clock.sleep(allowed.total_seconds())
        assert held.execution is not None
        held.execution.stop(Outcome.TIMEOUT, f"it ran longer than {format_duration(allowed)}")

    async def close(self) -> None:
        await self.inline.close()
        await self.process.close()


def given(held: Holding, environ: Mapping[str, str]) -> tuple[HandlerItem, Mask]:
    """What a handler is told of its item, and the mask for all that it says in turn.

    Raises BadInput naming a variable that `environ` lacks.
    """
    claim = held.claim
    written = params_of(claim.spec, claim.once)
    params = expand(written, environ)
    replaced = params != written
    item = HandlerItem(
        id=claim.id,
        type=claim.type,
        params=params,
        timezone=held.settings.timezone,
        written=written if replaced else None,
    )
    return item, mask_of(written, environ) if replaced else NOTHING


@dataclass(frozen=True, slots=True)
class _Report:
    """What a handler says while it runs, masked by its runner."""

    held: Holding
    events: Events

    def progress(self, done: int, total: int) -> None:
        self.held.report_progress(done, total)

    def log(self, level: int, message: str) -> None:
        self.events.emit_of(self.held.claim, Kind.SAID, message, level=level)
