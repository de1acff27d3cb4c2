"""The runs that a worker holds: claimed, and not yet released."""

import asyncio
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from blackboard.model import Ended, Outcome, replace
from blackboard.protocol.claims import Claim
from blackboard.protocol.rows import text_of
from blackboard.rules.due import renew_every
from blackboard.runners.runner import Execution
from blackboard.worker.slots import Slots

RELEASING_SHARE = 0.5
"""The part of a lease after which a lock is renewed although its release is under way. Whichever
lands first, the other is refused and settled.
"""
PROGRESS_EVERY = 5.0
"""Seconds between two writes of a run's progress, at the least."""
MOST_GIVEN_UP = 10_000
"""Runs that could not be released, whose nonces are kept: their locks are gone long before."""


@dataclass(slots=True, kw_only=True, eq=False, weakref_slot=True)
class Holding:
    """One run: its claim, renewed over time, and its handler under way."""

    claim: Claim
    shard: int = 0
    """The shard of its item."""
    execution: Execution | None = None
    progress: str = ""
    progress_written: str = ""
    """The progress that the lock carries."""
    asked: float | None = None
    """When the first renewal that has no answer yet was asked for, in monotonic seconds."""
    asking: bool = False
    """Whether a task is renewing its lock."""
    saving: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a checkpoint is saved: the next save needs the etag that this one gets."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while no renewal is under way."""
    ended: bool = False
    """The handler has ended. The lock is renewed until the release is acknowledged."""
    releasing: bool = False
    """A release that states the lock's etag is under way: the lock is renewed only if it would go
    stale."""
    lost: str = ""
    """Why the lock is not this worker's any more."""
    asked_to_end: str = ""
    """Why a pump is to save and return."""
    cut: str = ""
    """Why the run is to be stopped before its end."""

    def __post_init__(self) -> None:
        self.answered.set()

    def renewal_due(self, now: float) -> bool:
        """Whether it is time to touch the lock, for its lease or to write progress."""
        waited = now - self.claim.sent
        if self.releasing:
            return waited >= RELEASING_SHARE * self.claim.stale_after
        has_progress = self.progress != self.progress_written and waited >= PROGRESS_EVERY
        return has_progress or waited >= renew_every(self.claim.stale_after)

    def end(self) -> None:
        """Notes that the handler has ended, and drops its execution, which refers back to this."""
        self.ended = True
        self.execution = None

    def report_progress(self, done: int, total: int) -> None:
        self.progress = text_of([done, total])

    def lose(self, reason: str) -> None:
        """Reports to the handler that its lock is lost. The first reason counts. A pump may look at
        `ctx.stopping` alone.
        """
        self.lost = self.lost or reason
        self.ask_to_end(reason)

    def ask_to_end(self, reason: str) -> None:
        """Asks a pump to save and return."""
        self.asked_to_end = self.asked_to_end or reason
        self.pass_on()

    def cut_short(self, reason: str) -> None:
        """Stops the handler; its item is due again at once, if the lock is still this worker's."""
        self.cut = self.cut or reason
        self.pass_on()

    def as_stopped(self, ended: Ended) -> Ended:
        """The end of a run that has lost its lock, as that of one that was stopped for it, with
        what it raised, unless it raised LeaseLost.
        """
        raised = "" if ended.lease_lost else ended.error
        error = "; ".join(filter(None, (self.lost, raised)))
        return replace(ended, outcome=Outcome.CANCELLED, error=error)

    def pass_on(self) -> None:
        """Reports a lost lock or a stop to the handler, if it has been called."""
        if self.execution is None:
            return
        if self.lost:
            self.execution.lose(self.lost)
        if self.asked_to_end:
            self.execution.ask_to_end(self.asked_to_end)
        if self.cut:
            self.execution.stop(Outcome.CANCELLED, f"stopped: {self.cut}")


class Holdings:
    """All runs that a worker holds, by the nonce of their claims."""

    def __init__(self, slots: int) -> None:
        self.slots = Slots(slots)
        self.given_up = Latest(MOST_GIVEN_UP)
        """Nonces of runs that ended and could not be released: their locks are left to go stale."""
        self.changed = asyncio.Event()
        """Set when a run was released, or a claim that was answered late is settled."""
        self._held: dict[str, Holding] = {}

    def __iter__(self) -> Iterator[Holding]:
        return iter(tuple(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    def add(self, holding: Holding) -> bool:
        """Holds a run. Returns whether there was a slot for it."""
        claim = holding.claim
        self._held[claim.nonce] = holding
        return self.slots.occupy(claim.nonce, claim.type, claim.settings.slots)

    def has(self, nonce: str) -> bool:
        """Whether a run is held."""
        return nonce in self._held

    def get(self, nonce: str) -> Holding | None:
        """The run with this nonce. None: it is held no longer."""
        return self._held.get(nonce)

    def release(self, nonce: str) -> None:
        """Drops a run, and frees its slot, if it still has one."""
        del self._held[nonce]
        self.slots.vacate(nonce)

    @property
    def frees_slots(self) -> bool:
        """Whether runs have ended whose slots become free with their releases."""
        return any(held.ended and self.slots.has(nonce) for nonce, held in self._held.items())

    @property
    def nonces(self) -> set[str]:
        return set(self._held)

    @property
    def ids(self) -> set[str]:
        """The items whose runs are held."""
        return {held.claim.id for held in self._held.values()}


class Latest(Container[str]):
    """A set of names with a bound: when there are more than `most`, the oldest is dropped."""

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
