"""What a world is made of: its items, its workers, and what may go wrong there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from blackboard.errors import BadInput
from blackboard.handlers import Handler
from blackboard.rules.next_run import phase
from blackboard.schedule.durations import format_duration, parse_duration
from blackboard.settings import Settings
from blackboard.simulator.handlers import FENCED, NARROW, PLAIN, handler_of
from blackboard.simulator.host import BEGAN
from blackboard.simulator.weather import Odds
from blackboard.spec import Spec


class Trouble(StrEnum):
    """What may go wrong."""

    KILL = "kill"
    """A worker is killed, at any moment or about a batch of its own."""
    PAUSE = "pause"
    """A worker stands still, for up to a hundred leases."""
    SKEW = "skew"
    """Clocks are off by a minute or by years, and run up to 1 % too fast or too slow."""
    JUMP = "jump"
    """Somebody sets a worker's wall clock."""
    LOST = "lost"
    """Requests and replies get lost."""
    LATE = "late"
    """Batches land after their senders gave up."""
    BUSY = "503"
    """The store has no time."""
    PARTITION = "partition"
    """Nothing, or one direction, or no batch gets through between some workers and the store."""
    OUTAGE = "outage"
    """The store is away."""
    SHARD = "shard"
    """One partition is away, throttled or slow, or its replies get lost."""
    CLOCK = "clock"
    """The store's clock is set by less than a minute, and runs up to 1 % too fast or too slow."""
    REDEPLOY = "redeploy"
    """All workers are asked to stop, one after the other, and new ones take their places."""
    VERSIONS = "versions"
    """Every second worker is of a newer version, which takes over some of the items."""
    EDIT = "edit"
    """People add, edit, pause, resume, run, unlock, cancel and remove items."""


ALL = frozenset(Trouble)
NONE: frozenset[Trouble] = frozenset()


def troubles_of(text: str) -> frozenset[Trouble]:
    """From all, none, or names with commas. Raises BadInput."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names in (["all"], ["none"]):
        return ALL if names == ["all"] else NONE
    known = ", ".join(one.value for one in Trouble)
    for name in names:
        if name not in set(Trouble):
            raise BadInput("faults", f"{name!r} is no kind of fault", f"all, none, or of: {known}")
    if not names:
        raise BadInput("faults", "names none", f"all, none, or of: {known}")
    return frozenset(Trouble(name) for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Types:
    """The types of a world, and what is said of them: by `@handler`, and before it by `[types]`."""

    handlers: Mapping[str, Handler]
    settings: Settings


ALL_TYPES = Types(
    handlers={
        PLAIN: handler_of(PLAIN),
        FENCED: handler_of(FENCED, fenced=True),
        NARROW: handler_of(NARROW, slots=1),
    },
    settings=Settings(),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """An item of the world."""

    id: str
    spec: Spec
    takes: float
    """Seconds that a run takes on the mean."""
    type: str = PLAIN
    first: datetime | None = None
    """None: due at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A world before it begins. Equal scenarios are the same story."""

    seed: int
    items: Sequence[Declared]
    workers: int = 8
    hours: float = 1.0
    """For which things go wrong; a quiet time follows."""
    shards: int = 1
    slots: int = 8
    page_rows: int = 1_000
    """Rows of a page of the store: what is more comes in several, one after the other."""
    cycle: timedelta = timedelta(seconds=60)
    faults: frozenset[Trouble] = NONE
    trouble_every: float = 120.0
    """Seconds from one trouble to the next, on the mean: kills, pauses, partitions and so on."""
    odds: Odds = field(default_factory=lambda: Odds(busy=0.02, lost=0.02, late=0.01))
    """Of requests; only what is among `faults` counts."""
    failing: float = 0.05
    """Runs that fail."""
    types: Types = ALL_TYPES

    @property
    def weather(self) -> Odds:
        return Odds(
            busy=self.odds.busy if Trouble.BUSY in self.faults else 0.0,
            lost=self.odds.lost if Trouble.LOST in self.faults else 0.0,
            late=self.odds.late if Trouble.LATE in self.faults else 0.0,
        )

    @property
    def shortest_lease(self) -> float:
        """Seconds, of the items that say one; else two minutes."""
        said = {one.spec.stale_after for one in self.items if one.spec.stale_after}
        leases = [parse_duration(text, "stale_after").total_seconds() for text in said]
        return min(leases, default=120.0)

    @property
    def worker_hours(self) -> float:
        return self.workers * self.hours


def synthetic(
    count: int, *, every: timedelta, takes: float | None = None, spread: bool = False
) -> tuple[Declared, ...]:
    """A mixed board: most items run `every` so often, some by cron, some fenced, a few with the
    interval for a lease. All are due at once, or `spread` over their first interval.
    """
    mean = usual_length(every) if takes is None else takes
    return tuple(
        Declared(
            id=f"item-{number}",
            type=FENCED if number % 7 == 6 else PLAIN,
            spec=_spec(number, every),
            takes=mean,
            first=BEGAN + every * phase(f"item-{number}") if spread else None,
        )
        for number in range(count)
    )


def usual_length(interval: timedelta) -> float:
    """Seconds of a run that nothing is known of but its interval."""
    return min(interval.total_seconds() / 20, 120.0)


def _spec(number: int, every: timedelta) -> Spec:
    lease = format_duration(max(min(every / 4, timedelta(minutes=2)), timedelta(seconds=10)))
    interval = format_duration(every)
    match number % 10:
        case 7:
            return Spec(cron=_cron(number, every), stale_after=lease, retries=1)
        case 8:
            return Spec(cron=_cron(number, every), stale_after=lease, missed="none")
        case 9:
            return Spec(every=interval)
        case _:
            return Spec(every=interval, stale_after=lease, retries=number % 3)


def _cron(number: int, every: timedelta) -> str:
    """About as often as `every`, as far as cron can say it."""
    minutes = max(round(every.total_seconds() / 60), 1)
    if minutes < 60:
        return f"*/{minutes} * * * *"
    return f"{number % 60} */{min(minutes // 60, 23)} * * *"
