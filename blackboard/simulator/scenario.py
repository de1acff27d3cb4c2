"""A world before it begins: its items, its workers, and the plan of its faults.

The plan is drawn from the seed, and is data: the same world can be run with fewer entries, which is
how a failure is shrunk.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from blackboard.clock import SeededChance
from blackboard.errors import BadInput
from blackboard.handlers.handler import Handler
from blackboard.protocol.keys import group_board, partition
from blackboard.rules.next_run import phase
from blackboard.schedule.times import format_duration, parse_duration
from blackboard.settings import Settings
from blackboard.simulator.handlers import FENCED, KEYED, NARROW, PLAIN, SCARCE, handler_of
from blackboard.simulator.network import BusFault, Fated, LinkFault, Odds, ShardFault
from blackboard.simulator.processes import WORLD_START, TrapPoint, stream
from blackboard.spec import Spec

if TYPE_CHECKING:
    from blackboard.simulator.workers import SharedPart
    from blackboard.simulator.world import World


class Fault(StrEnum):
    """Kinds of faults that may be injected."""

    KILL = "kill"
    """A worker is killed, at any moment or before, during or after a batch."""
    PAUSE = "pause"
    """A worker is stopped, for up to a hundred leases."""
    SKEW = "skew"
    """Clocks are off by a minute or by years, and run up to 1 % too fast or too slow."""
    JUMP = "jump"
    """The wall clock of a worker is set."""
    LOST = "lost"
    """Requests and replies are lost."""
    LATE = "late"
    """Batches are applied after their senders gave up."""
    TWICE = "twice"
    """Batches come twice, and are answered as the second was."""
    BUSY = "503"
    """The store refuses requests."""
    PARTITION = "partition"
    """Nothing, or one direction, or no batch gets through between some workers and the store."""
    OUTAGE = "outage"
    """The store is away."""
    SHARD = "shard"
    """One partition of the store is away, throttled or slow, or its replies are lost."""
    BUS = "bus"
    """The bus over which partitions are raced for is away, answers late or loses messages."""
    CLOCK = "clock"
    """The store's clock is set by less than a minute, and runs up to 1 % too fast or too slow."""
    REDEPLOY = "redeploy"
    """All workers are asked to stop, one after the other, and new ones take their places."""
    VERSIONS = "versions"
    """Every second worker is of a newer version: it adds columns, and takes over some items."""
    EDIT = "edit"
    """Operators add, edit, pause, resume, run, unlock, cancel and remove items."""


BOARD = "simulated"
ALL = frozenset(Fault)
OF_A_BOARD = ALL - {Fault.BUS}
"""Those that a board without shared work may have."""
NONE: frozenset[Fault] = frozenset()


def parse_faults(text: str) -> frozenset[Fault]:
    """The faults of a board that a text names: "all", "none", or names with commas. Raises
    BadInput.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names in (["all"], ["none"]):
        return OF_A_BOARD if names == ["all"] else NONE
    kinds = ", ".join(fault.value for fault in Fault if fault in OF_A_BOARD)
    for name in names:
        if name not in OF_A_BOARD:
            raise BadInput(
                "faults", f"{name!r} is not a kind of fault", f"all, none, or of: {kinds}"
            )
    if not names:
        raise BadInput("faults", "names none", f"all, none, or of: {kinds}")
    return frozenset(Fault(name) for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTypes:
    """The types of a world, with their defaults: those of `[types]` precede those of `@handler`."""

    handlers: Mapping[str, Handler]
    settings: Settings


ALL_TYPES = SimulatedTypes(
    handlers={
        PLAIN: handler_of(PLAIN),
        FENCED: handler_of(FENCED, fenced=True),
        NARROW: handler_of(NARROW, slots=1),
        SCARCE: handler_of(SCARCE, concurrency=2),
        KEYED: handler_of(KEYED, key="host"),
    },
    settings=Settings(),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedItem:
    id: str
    spec: Spec
    takes: float
    """The mean seconds of a run."""
    type: str = PLAIN
    first: datetime | None = None
    """None: due at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedWork(ABC):
    """Work that all workers of a world share, beside its items. `blackboard simulate` leaves it
    out; the tests have groups of partitions, and elections.
    """

    name: str
    lease: float
    """Seconds."""

    @property
    @abstractmethod
    def ids(self) -> tuple[str, ...]:
        """The ids of its items, which no other item of a world has."""

    @property
    @abstractmethod
    def group(self) -> str:
        """The name of the group whose board has its items."""

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The handlers of its items, by type."""
        return {}

    @property
    def grace(self) -> float:
        """Seconds for its handlers in a worker that was asked to stop."""
        return 0.0

    @property
    def has_bus(self) -> bool:
        """Whether its workers are connected by a bus, which may fail."""
        return False

    @abstractmethod
    def in_world(self, world: "World") -> "SharedPart":
        """Its part of a world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A world before it begins. Worlds of equal scenarios are equal."""

    seed: int
    items: Sequence[SimulatedItem]
    workers: int = 8
    hours: float = 1.0
    """Hours with faults; a time without faults follows."""
    shards: int = 1
    slots: int = 8
    page_rows: int = 1_000
    """The most rows in a page of the store: longer ranges are read in several pages."""
    cycle: timedelta = timedelta(seconds=60)
    faults: frozenset[Fault] = NONE
    trouble_every: float = 120.0
    """The mean seconds from one injection to the next."""
    odds: Odds = field(default_factory=lambda: Odds(busy=0.02, lost=0.02, late=0.01, twice=0.01))
    """The odds of faults of single requests; only faults in `faults` happen."""
    failing: float = 0.05
    """The share of runs that fail."""
    saving: float = 0.5
    """The share of runs that save checkpoints."""
    housekeeping: timedelta | None = None
    """How often expired rows are deleted; None: never."""
    types: SimulatedTypes = ALL_TYPES
    shared: Sequence[SharedWork] = ()

    @property
    def handlers(self) -> Mapping[str, Handler]:
        handlers = dict(self.types.handlers)
        for group in self.shared:
            handlers.update(group.handlers)
        return handlers

    @property
    def shared_ids(self) -> tuple[str, ...]:
        return tuple(item_id for group in self.shared for item_id in group.ids)

    @property
    def with_bus(self) -> tuple[str, ...]:
        return tuple(group.name for group in self.shared if group.has_bus)

    @property
    def places(self) -> tuple[str, ...]:
        """The partitions of the store that may fail alone: the shards, and those of shared work."""
        shards = [partition(BOARD, number, self.shards) for number in range(self.shards)]
        shared = [partition(group_board(BOARD, group.group), 0, 1) for group in self.shared]
        return tuple(dict.fromkeys([*shards, *shared]))

    @property
    def request_odds(self) -> Odds:
        return Odds(
            busy=self.odds.busy if Fault.BUSY in self.faults else 0.0,
            lost=self.odds.lost if Fault.LOST in self.faults else 0.0,
            late=self.odds.late if Fault.LATE in self.faults else 0.0,
            twice=self.odds.twice if Fault.TWICE in self.faults else 0.0,
        )

    @property
    def shortest_lease(self) -> float:
        """The shortest lease in seconds; 120 if none is set."""
        texts = {item.spec.stale_after for item in self.items if item.spec.stale_after}
        leases = [parse_duration(text, "stale_after").total_seconds() for text in texts]
        leases += [group.lease for group in self.shared]
        return min(leases, default=120.0)

    @property
    def worker_hours(self) -> float:
        return self.workers * self.hours


def synthetic(
    count: int, *, every: timedelta, takes: float | None = None, spread: bool = False
) -> tuple[SimulatedItem, ...]:
    """A mixed board: most items run `every` so often, some by cron, some are fenced or have
    blackouts, a few have the interval for a lease. All are due at once, or `spread` over their
    first interval.
    """
    mean = usual_length(every) if takes is None else takes
    return tuple(
        SimulatedItem(
            id=f"item-{number}",
            type=FENCED if number % 7 == 6 else PLAIN,
            spec=_spec(number, every),
            takes=mean,
            first=WORLD_START + every * phase(f"item-{number}") if spread else None,
        )
        for number in range(count)
    )


def usual_length(interval: timedelta) -> float:
    """Seconds of a run, from its interval alone."""
    return min(interval.total_seconds() / 20, 120.0)


BLACKOUT = ", ".join(f"{hour:02}:07-{hour:02}:15" for hour in range(24))
"""Some minutes of each hour; hourly slots of the items that have it lie outside."""


def _spec(number: int, every: timedelta) -> Spec:
    lease = format_duration(max(min(every / 4, timedelta(minutes=2)), timedelta(seconds=10)))
    interval = format_duration(every)
    match number % 10:
        case 5:
            return Spec(every=interval, stale_after=lease, blackout=BLACKOUT)
        case 6:
            return Spec(cron=_cron(number, every), stale_after=lease, blackout=BLACKOUT)
        case 7:
            return Spec(cron=_cron(number, every), stale_after=lease, retries=1)
        case 8:
            return Spec(cron=_cron(number, every), stale_after=lease, missed="none")
        case 9:
            return Spec(every=interval)
        case _:
            return Spec(every=interval, stale_after=lease, retries=number % 3)


def _cron(number: int, every: timedelta) -> str:
    """A cron expression with about the interval `every`."""
    minutes = max(round(every.total_seconds() / 60), 1)
    if minutes < 60:
        return f"*/{minutes} * * * *"
    return f"{number % 60} */{min(minutes // 60, 23)} * * *"


VERBS = ("add", "edit", "pause", "resume", "run_now", "unlock", "cancel", "remove")
LONGEST_PAUSE_LEASES = 100


@dataclass(frozen=True, slots=True)
class Injection:
    """One fault: when, where, how long, and of which form."""

    at: float
    """Seconds since the world began."""
    fault: Fault
    target: int
    """The seat of a worker, or the number of an item (those of shared work come behind the
    others), of a partition of the store (likewise) or of a bus.
    """
    seconds: float = 0.0
    how: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    injections: tuple[Injection, ...]
    fated: tuple[Fated, ...] | None = None
    """The fates of requests; None: they are drawn."""


def draw_plan(scenario: Scenario) -> FaultPlan:
    chance = stream(scenario.seed, "plan")
    faults = scenario.faults if scenario.with_bus else scenario.faults - {Fault.BUS}
    kinds = [fault for fault in Fault if fault in faults for _ in range(_WEIGHTS.get(fault, 0))]
    injections: list[Injection] = []
    at, end = 0.0, scenario.hours * 3600.0
    while kinds:
        at += -math.log(1.0 - chance.fraction()) * scenario.trouble_every
        if at >= end:
            break
        injections += _drawn(_pick(chance, kinds), chance, scenario, round(at, 3))
    return FaultPlan(injections=tuple(sorted(injections, key=lambda injection: injection.at)))


_WEIGHTS = {
    Fault.KILL: 4,
    Fault.PAUSE: 4,
    Fault.JUMP: 1,
    Fault.PARTITION: 2,
    Fault.OUTAGE: 1,
    Fault.SHARD: 2,
    Fault.BUS: 2,
    Fault.CLOCK: 1,
    Fault.REDEPLOY: 1,
    Fault.VERSIONS: 1,
    Fault.EDIT: 6,
}


def _drawn(
    fault: Fault, chance: SeededChance, scenario: Scenario, at: float
) -> Iterator[Injection]:
    workers, items = scenario.workers, len(scenario.items)
    match fault:
        case Fault.OUTAGE:
            yield Injection(at, fault, 0, _span(chance, 1.0, 300.0))
        case Fault.SHARD:
            shard_fault = _pick(chance, tuple(ShardFault))
            number = _number(chance, len(scenario.places))
            yield Injection(at, fault, number, _span(chance, 2.0, 600.0), shard_fault.value)
        case Fault.BUS:
            bus_fault = _pick(chance, tuple(BusFault))
            number = _number(chance, len(scenario.with_bus))
            yield Injection(at, fault, number, _span(chance, 2.0, 600.0), bus_fault.value)
        case Fault.CLOCK:
            yield Injection(at, fault, 0, _span(chance, 0.1, 50.0) * _sign(chance))
        case Fault.VERSIONS if workers > 1 and items > 2:
            # People of this version cannot change a newer item: at most one item in three.
            yield Injection(at, fault, _pick(chance, range(2, items, 3)))
        case Fault.EDIT:
            verb = _pick(chance, VERBS)
            item = _number(chance, items + len(scenario.shared_ids))
            yield Injection(at, fault, item, chance.fraction(), verb)
        case _:
            yield from _drawn_for_workers(fault, chance, scenario, at)


def _drawn_for_workers(
    fault: Fault, chance: SeededChance, scenario: Scenario, at: float
) -> Iterator[Injection]:
    workers = scenario.workers
    match fault:
        case Fault.KILL:
            how, seat = _pick(chance, tuple(TrapPoint)), _number(chance, workers)
            yield Injection(at, fault, seat, _span(chance, 0.1, 60.0), how.value)
        case Fault.PAUSE:
            seconds = _span(chance, 0.5, LONGEST_PAUSE_LEASES * scenario.shortest_lease)
            how = _pick(chance, tuple(TrapPoint))
            yield Injection(at, fault, _number(chance, workers), seconds, how.value)
        case Fault.JUMP:
            seconds = _span(chance, 1.0, 2 * 86_400.0) * _sign(chance)
            yield Injection(at, fault, _number(chance, workers), seconds)
        case Fault.PARTITION:
            link_fault, seconds = _pick(chance, tuple(LinkFault)), _span(chance, 2.0, 600.0)
            count = max(workers // 2, 1) if chance.fraction() < 0.25 else 1
            first = _number(chance, workers)
            for seat in range(first, first + count):
                yield Injection(at, fault, seat % workers, seconds, link_fault.value)
        case Fault.REDEPLOY:
            apart = _span(chance, 1.0, 60.0)
            for seat in range(workers):
                yield Injection(at + seat * apart, fault, seat)


Choice = TypeVar("Choice")


def _pick(chance: SeededChance, choices: Sequence[Choice]) -> Choice:
    return choices[_number(chance, len(choices))]


def _number(chance: SeededChance, count: int) -> int:
    return int(chance.fraction() * count)


def _sign(chance: SeededChance) -> int:
    return 1 if chance.fraction() < 0.5 else -1


def _span(chance: SeededChance, least: float, most: float) -> float:
    """Draws seconds on a logarithmic scale: 1 to 10 s is as likely as 10 to 100 s."""
    return round(least * math.exp(math.log(most / least) * chance.fraction()), 3)
