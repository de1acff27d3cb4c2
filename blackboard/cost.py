"""The requests of a board to its store in a month, and their price on Azure. Pure arithmetic.

    kind         requests
    -----------  -----------------------------------------------------------------------------
    walks        a page for each worker, beat and shard; more where an item runs more often than
                 workers walk
    claims       1 a run; 33 runs in one when they are ready together
    releases     1 a run; 25 runs in one when they end together
    renewals     1 for each third of the lease that a run lasts, and each minute; as long as the
                 item's last run lasted
    races        1 a run, where there are several workers: a page that another has read in vain,
                 or a claim that it has lost (`backlog.py` has how workers avoid such races)
    membership   1 a minute and worker, and a page every 5 minutes
    pruning      a look at the history and a deletion every 96 runs of an item; every 16 where runs
                 reach the largest age before the largest number
    coordinator  3 looks or renewals a lease and worker; a counting of the items each 5 minutes,
                 which reads them, the locks where something runs, and writes a row;
                 an examination of the rows each hour, of a board that is not too large;
                 a look at the history of each item that runs seldom, each day or, where retention
                 is shorter than four days, each quarter of it

It is a forecast for a board without faults. Not counted: retries, commands, notices, repeated
requests, items that run once; what the coordinator deletes each day.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import ceil
from typing import Any

from blackboard.errors import BadInput
from blackboard.model import ANNOUNCE_EVERY, Item, State, replace
from blackboard.protocol.board_row import SHARDS
from blackboard.protocol.board_table import Resolve
from blackboard.protocol.claims import ROWS_OF_A_CLAIM
from blackboard.protocol.releases import ROWS_OF_A_RELEASE
from blackboard.protocol.retention import PRUNE_EVERY, Retention, prune_every
from blackboard.rules.due import lease, renew_every
from blackboard.rules.status import COUNTED_EVERY
from blackboard.schedule.schedule import Cron, Every, Once, RRule, Schedule, slots_after
from blackboard.sharing.coordinator import EXAMINES_EVERY, LARGEST_EXAMINED, LEASE, prunes_every
from blackboard.sharing.election import JITTER
from blackboard.spec import RunSettings
from blackboard.worker.membership import MEETS_EVERY

MONTH = timedelta(days=365.25) / 12
BEAT = 0.95
"""The mean time between two beats, as a share of the cycle: see `wake.py`."""
BATCH = 100
"""Rows in one request on Azure, at the most: the limit of `AzureTable`, which is slow to import."""
CLAIMS, RELEASES = BATCH // ROWS_OF_A_CLAIM, BATCH // ROWS_OF_A_RELEASE
"""Claims, and releases, in one request."""
SINGLY = 2.0
"""Requests of a run by itself: its claim and its release."""
IN_BULK = 1 / CLAIMS + 1 / RELEASES
"""Requests of a run among many that are ready together, and end together."""
ROWS_A_RUN = ROWS_OF_A_CLAIM + ROWS_OF_A_RELEASE
"""Rows that a run writes: Azure calls them entities."""
PARTITION = 2_000
"""Entities a second that one partition, and so one shard, accepts on Azure."""
PLANNED = PARTITION // 2
"""The half to plan with: commands need a part, and bursts are throttled earlier."""
MOST_SHARDS = SHARDS[-1]
ITEM_BYTES, RUN_BYTES = 1_500, 650
"""Bytes of an item with its token, and of a run in the history, without their texts."""
WEEK = timedelta(weeks=1)
SLOTS_FORESEEN, MOST_FORESEEN = 100, 1_100
"""Slots from which a mean interval is read, at the least and at the most: a slot every 10 minutes
is read for a week, because working hours repeat each week.
"""
LONGEST_FORESEEN = timedelta(days=4 * 365 + 1)
"""The time in which slots are read, at the most: a rule may have one in each leap year."""
SHORTEST_LOOKED_AT = timedelta(minutes=10)
"""What runs more often is read as if it had a slot so often: a blackout takes the same share."""
_MINUTES = re.compile(r"(?:^|(?<=; ))[^@ ]+ ")
"""The first fields of cron expressions."""

ANNOUNCED_EVERY = timedelta(seconds=ANNOUNCE_EVERY)
"""The time between two writes of a worker's row; at each `MEETS_EVERY`th it reads those of others.
"""
CHECKED_EVERY = LEASE / 3 * (1 - JITTER / 2)
"""The mean time between two checks of the coordinator's election: see `sharing/election.py`."""
PAGE = 1_000
"""Rows of a page on Azure."""
COUNTED_IN, EXAMINED_IN = 1, 2
"""Requests besides those for items, locks and tokens: the row of the counts, which is written; the
rows of workers, and the floor."""

PRICE = 0.036
"""US dollars for a million transactions of any kind."""
STORAGE_PRICE = 0.045
"""US dollars for a gigabyte and month, locally redundant."""
PRICED = "list price quoted in July 2026; regions differ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """How one item runs."""

    interval: timedelta
    """The mean time between two runs."""
    ready: datetime
    lasts: timedelta
    """The duration of its last run."""
    renewed: float
    """Seconds between two renewals of its lock."""
    spec: int = 0
    outcome_text: int = 0
    """Characters of its spec, and of the result and error of its last run."""

    @property
    def runs(self) -> float:
        """Runs in a month."""
        return MONTH / self.interval

    @property
    def renewals(self) -> float:
        """Renewals in a month."""
        return self.runs * int(self.lasts.total_seconds() / self.renewed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A board and its workers."""

    rhythms: Sequence[Rhythm]
    shards: int = 1
    workers: int = 1
    cycle: timedelta = timedelta(seconds=60)
    retention: Retention = field(default_factory=Retention)
    coordinator: bool = True
    """Whether the workers elect a coordinator."""

    @property
    def runs(self) -> float:
        """Runs in a month."""
        return sum(rhythm.runs for rhythm in self.rhythms)

    @property
    def renewals(self) -> float:
        """Renewals in a month."""
        return sum(rhythm.renewals for rhythm in self.rhythms)

    @property
    def herds(self) -> Mapping[tuple[timedelta, datetime], int]:
        """Items that run together: of one interval, and ready in the same second."""
        return Counter(
            (rhythm.interval, rhythm.ready.replace(microsecond=0)) for rhythm in self.rhythms
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """Requests by their purpose."""

    walks: float
    claims: float
    releases: float
    renewals: float
    races: float
    membership: float
    pruning: float
    coordinator: float

    @property
    def total(self) -> float:
        return sum(self.by_kind.values())

    @property
    def by_kind(self) -> dict[str, float]:
        return asdict(self)


def rhythm_of(item: Item, *, settings: RunSettings, now: datetime) -> Rhythm | None:
    """How an item runs from now on; None when it does not run repeatedly."""
    interval = _interval(settings.schedule, now) if settings.schedule else None
    if item.state is not State.ACTIVE or interval is None:
        return None
    if settings.schedule and (most := settings.schedule.limits.runs):
        interval = max(interval, MONTH / max(most - item.runs, 1))
    lasted = item.stop - item.start if item.stop and item.start else timedelta(0)
    return Rhythm(
        interval=interval,
        ready=item.ready,
        lasts=max(lasted, timedelta(0)),
        renewed=renew_every(lease(settings, item.slot).total_seconds()),
        spec=len(item.spec),
        outcome_text=len(item.result) + len(item.error),
    )


def rhythms_of(items: Iterable[Item], resolve: Resolve, now: datetime) -> list[Rhythm]:
    """How items run from now on. Left out are items that do not run repeatedly, and those whose
    settings cannot be computed here: `doctor` reports them.
    """
    rhythms = []
    for item in items:
        try:
            rhythm = rhythm_of(item, settings=resolve(item.type, item.spec), now=now)
        except (BadInput, ValueError):
            continue
        if rhythm is not None:
            rhythms.append(rhythm)
    return rhythms


def _interval(schedule: Schedule, now: datetime) -> timedelta | None:
    """The mean time between the coming slots, longer where the schedule ends within a month; None
    when there are none.
    """
    until = schedule.limits.until
    left = 1.0 if until is None else min((until - now) / MONTH, 1.0)
    if isinstance(schedule, Once) or left <= 0:
        return None
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    mean = _mean(replace(schedule, limits=replace(schedule.limits, until=None)), today)
    return mean and mean / left


@lru_cache(maxsize=4096)
def _mean(schedule: Every | Cron | RRule, today: datetime) -> timedelta | None:
    """The mean time between the slots of an endless schedule from `today` on. Reading slots takes
    long, so few are read, and none of an `every` or a cron expression without windows.
    """
    if isinstance(schedule, RRule):
        return _mean_of_slots(schedule, today)
    all_slots = _without_windows(schedule)
    if not schedule.limits.windows or all_slots is None:
        return all_slots
    looked_at = schedule
    if all_slots < SHORTEST_LOOKED_AT:  # at the times of the day at which it has slots
        if isinstance(schedule, Every):
            looked_at = replace(schedule, interval=SHORTEST_LOOKED_AT)
        else:
            looked_at = replace(schedule, expression=_MINUTES.sub("*/10 ", schedule.expression))
    of_these, open_ones = _without_windows(looked_at), _mean_of_slots(looked_at, today)
    return open_ones and of_these and open_ones * (all_slots / of_these)


def _without_windows(schedule: Every | Cron) -> timedelta | None:
    return schedule.interval if isinstance(schedule, Every) else schedule.mean_interval()


def _mean_of_slots(schedule: Every | Cron | RRule, today: datetime) -> timedelta | None:
    """Read from the slots of whole weeks; where there are few, of `LONGEST_FORESEEN`, or of the
    month in which they end; and where there are very many, from the first ones.
    """
    soon, end = 0, today + WEEK
    for before, slot in enumerate(slots_after(schedule, today)):
        if slot > today + LONGEST_FORESEEN:
            return LONGEST_FORESEEN / before if before else None
        if slot > end:
            if before >= SLOTS_FORESEEN:
                return (end - today) / before
            end = today + ceil((slot - today) / WEEK) * WEEK
        if before + 1 == MOST_FORESEEN:
            return (slot - today) / MOST_FORESEEN
        soon += slot <= today + MONTH
    return MONTH / soon if soon else None


def asked_for(load: Load, *, together: bool = False) -> RequestCounts:
    """Requests in a month. With `together`, the least: items that are ready in the same second are
    claimed together, and end together.
    """
    beat = BEAT * load.cycle
    shortest = min((rhythm.interval for rhythm in load.rhythms), default=beat)
    walks = load.workers * load.shards * (MONTH / beat) * ceil(beat / shortest)
    claims = releases = races = 0.0
    for (interval, _), size in load.herds.items():
        times = MONTH / interval
        races += times * size if load.workers > 1 else 0.0
        claims += times * (ceil(size / CLAIMS) if together else size)
        releases += times * (ceil(size / RELEASES) if together else size)
    return RequestCounts(
        walks=walks,
        claims=claims,
        releases=releases,
        renewals=load.renewals,
        races=races,
        membership=load.workers * (MONTH / ANNOUNCED_EVERY) * (1 + 1 / MEETS_EVERY),
        pruning=sum(
            2 * rhythm.runs / prune_every(load.retention, rhythm.interval)
            for rhythm in load.rhythms
        ),
        coordinator=_coordinator(load) if load.coordinator else 0.0,
    )


def _coordinator(load: Load) -> float:
    """Requests in a month of the workers' election and of the one that is elected."""
    checks = load.workers * (MONTH / CHECKED_EVERY)
    pages = load.shards + len(load.rhythms) // PAGE
    busy = min(max((rhythm.lasts / rhythm.interval for rhythm in load.rhythms), default=0.0), 1.0)
    counting = pages + busy * load.shards + COUNTED_IN
    examining = 2 * pages + EXAMINED_IN if len(load.rhythms) <= LARGEST_EXAMINED else 0
    seldom = sum(rhythm.interval > load.retention.age / PRUNE_EVERY for rhythm in load.rhythms)
    return (
        checks
        + counting * (MONTH / COUNTED_EVERY)
        + examining * (MONTH / EXAMINES_EVERY)
        + seldom * (MONTH / prunes_every(load.retention))
    )


def entities_a_second(load: Load) -> float:
    """Rows written in a second, on the mean."""
    return (load.runs * ROWS_A_RUN + load.renewals) / MONTH.total_seconds()


def shards_advised(load: Load) -> int:
    """The shards that the mean load needs, with room for more."""
    return min(max(ceil(entities_a_second(load) / PLANNED), 1), MOST_SHARDS)


def largest_herd(load: Load) -> tuple[int, float]:
    """The largest number of items that are ready in the same second, and the least seconds that
    the store needs to write all their rows.
    """
    moments = Counter(rhythm.ready.replace(microsecond=0) for rhythm in load.rhythms)
    most = max(moments.values(), default=0)
    return most, most * ROWS_A_RUN / (PARTITION * load.shards)


def stored(load: Load) -> int:
    """Bytes when the history has its full length, without the output of handlers."""
    return round(sum(_bytes(rhythm, load.retention) for rhythm in load.rhythms))


def _bytes(rhythm: Rhythm, retention: Retention) -> float:
    kept = min(
        retention.runs + prune_every(retention, rhythm.interval), retention.age / rhythm.interval
    )
    return (
        ITEM_BYTES
        + 4 * rhythm.spec
        + 2 * rhythm.outcome_text
        + kept * (RUN_BYTES + 2 * rhythm.outcome_text)
    )


def price_of(store: str) -> float:
    """What a store charges for a million requests, in US dollars: the list price of Azure, else
    nothing.
    """
    return PRICE if store.lower().startswith("https:") else 0.0


def bill(requests: float, *, size: int, price: float = PRICE) -> float:
    """US dollars a month."""
    return requests / 1e6 * price + size / 1e9 * STORAGE_PRICE


def bill_record(requests: float, *, size: int, price: float) -> dict[str, Any]:
    """A bill for programs."""
    return {
        "currency": "USD",
        "requests": bill(requests, size=0, price=price),
        "storage": bill(0, size=size),
        "total": bill(requests, size=size, price=price),
        "price_per_million": price,
        "storage_price_per_gb": STORAGE_PRICE,
    }
