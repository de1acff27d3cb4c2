"""What a worker holds: the runs it has started and not yet let go."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from blackboard.model import Claim, Outcome
from blackboard.rows import text_of
from blackboard.rules.claims import deadline, renew_every
from blackboard.runner import Execution
from blackboard.spec import RunSettings

PROGRESS_EVERY = 5.0
"""Seconds between two writes of a run's progress, at the least."""


@dataclass(slots=True, kw_only=True, eq=False)
class Holding:
    """One run: its claim, renewed over time, and its handler under way."""

    claim: Claim
    settings: RunSettings
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
    releasing: bool = False
    """The handler has ended: the lock is about to go, and is not renewed any more."""
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
    given_up: set[str] = field(default_factory=set)
    """Nonces of runs that ended and could not be let go: their locks are left to go stale."""
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
        """Slots that nothing runs in."""
        return max(self.slots - len(self._held), 0)


class Room:
    """The free slots of a worker, counted down as tokens are chosen."""

    def __init__(self, holdings: Holdings) -> None:
        self._free = holdings.free
        self._running = Counter(held.claim.type for held in holdings)

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
