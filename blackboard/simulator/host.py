"""A process of the simulated world: its clocks, its chance, and what has befallen it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from blackboard.clock import SeededChance
from blackboard.model import whole_milliseconds
from blackboard.simulator.timeline import ProcessLoop, Timeline

BEGAN = datetime(2026, 1, 5, tzinfo=UTC)
"""What the store's clock shows when the world begins: a Monday."""


class HostClock:
    """The clocks of a host: a wall clock that is off, and may be set; a monotonic one of its own
    rate.
    """

    def __init__(self, timeline: Timeline, loop: ProcessLoop, *, offset: float) -> None:
        self.offset = offset
        """Seconds by which the wall clock is ahead."""
        self._timeline = timeline
        self._loop = loop

    def now(self) -> datetime:
        return whole_milliseconds(BEGAN + timedelta(seconds=self._timeline.now + self.offset))

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await self._loop.sleep(seconds)


@dataclass(slots=True, kw_only=True, eq=False)
class Process:
    """One process. `name` is its own for ever: another takes its place under another name."""

    name: str
    loop: ProcessLoop
    clock: HostClock
    chance: SeededChance
    went_on: float = 0.0
    """When it was last continued after it had stood still."""
    walks: int = 0
    """Whole walks that it has made."""
    reads: dict[str, float] = field(default_factory=dict)
    """When it was last served the locks of a partition."""
    requests: int = 0
    """Sent to the store so far: the number of each is its name in a plan of faults."""
    newer: bool = False
    """Whether it runs a newer version of the program."""
    trap: "Trap | None" = None
    """What befalls it at its next batch."""

    @property
    def runs(self) -> bool:
        return not (self.loop.dead or self.loop.stopped)


class When(StrEnum):
    """At which moment a process is killed, or stands still."""

    NOW = "now"
    BEFORE = "before"
    """Its next batch is sent."""
    SENT = "sent"
    """Its next batch, and not yet applied."""
    APPLIED = "applied"
    """Its next batch, and it has not heard of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trap:
    """A kill or a pause of a process."""

    when: When
    seconds: float | None
    """How long the process stands still; None: it is killed."""
    replaced_after: float = 5.0
    """Seconds until another takes the seat of a process that was killed."""
