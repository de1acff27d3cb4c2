"""Small crowded worlds, in which a few minutes hold what takes weeks elsewhere.

Every fault of a drawn plan happens here every few seconds. Besides, people send several requests
about one item at the same moment, and workers stand still for about a lease: races that are won by
milliseconds are frequent.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from blackboard.model import replace
from blackboard.rules.shares import Balance
from blackboard.simulator.handlers import FENCED, KEYED, NARROW, SCARCE
from blackboard.simulator.network import Odds
from blackboard.simulator.processes import TrapPoint
from blackboard.simulator.scenario import (
    ALL,
    VERBS,
    Fault,
    FaultPlan,
    Injection,
    Scenario,
    SimulatedItem,
    draw_plan,
)
from blackboard.simulator.world import World
from blackboard.spec import Spec
from tests.support.simulated_elections import SimulatedElection
from tests.support.simulated_groups import SimulatedGroup

CROWD = (
    SimulatedItem(id="often", spec=Spec(every="20s", stale_after="10s", retries=1), takes=5.0),
    SimulatedItem(id="long", spec=Spec(every="20s", stale_after="10s", timeout="60s"), takes=25.0),
    SimulatedItem(id="fenced", type=FENCED, spec=Spec(every="20s", stale_after="10s"), takes=10.0),
    SimulatedItem(
        id="all", spec=Spec(cron="* * * * *", stale_after="10s", missed="all"), takes=5.0
    ),
    SimulatedItem(
        id="none",
        spec=Spec(cron="* * * * *", stale_after="10s", missed="none", missed_after="20s"),
        takes=5.0,
    ),
    SimulatedItem(id="patient", spec=Spec(every="20s"), takes=2.0),
)
"""Short intervals and leases, every way of missing a run, and one with its interval for a lease.
Specs that differ in all but the schedule: an edit may leave a waiting token its key.
"""
NARROWS = (
    *(
        SimulatedItem(
            id=f"narrow-{number}",
            type=NARROW,
            spec=Spec(every="20s", stale_after="10s", timeout="5m"),
            takes=90.0,
        )
        for number in range(8)
    ),
    *CROWD[:2],
)
"""More of a type than its slots can ever run, and the others behind it."""
FULL = tuple(
    SimulatedItem(id=f"full-{number}", spec=Spec(every="20s", stale_after="10s"), takes=10.0)
    for number in range(12)
)
"""More than all slots can ever run."""
SCARCES = tuple(
    SimulatedItem(
        id=f"{kind}-{number}",
        type=kind,
        spec=Spec(
            every="60s",
            stale_after="5m" if number % 2 else "10s",
            timeout="10m",
            params={"host": f"{number % 2}.example"} if kind == KEYED else {},
        ),
        takes=60.0 if number % 2 else 20.0,
    )
    for kind in (SCARCE, KEYED)
    for number in range(5)
)
"""More than the limits of the board ever let run, some with longer leases than a permit has."""
BLACKOUT = "00:02-00:05, 00:07-00:10, 00:12-00:14"
"""Of the quarter of an hour that a world lasts."""
RUSHED = ("edit", "pause", "resume", "unlock", "cancel")
"""What people may ask for again and again: an item remembers the last eight additions and runs that
were asked for, and no more.
"""


def crowded(seed: int) -> Scenario:
    """Three workers, six items, a troubled network; now and then more than there are slots for."""
    if seed % 10 in {4, 9}:
        return _full(seed)
    if seed % 10 == 8:
        return unanswered(seed)
    return Scenario(
        seed=seed,
        items=CROWD,
        workers=3,
        hours=0.25,
        slots=3,
        shards=2 if seed % 10 in {2, 7} else 1,
        page_rows=8 if seed % 10 in {3, 7} else 1_000,
        cycle=timedelta(seconds=30),
        faults=ALL,
        trouble_every=12.0,
        odds=Odds(busy=0.02, lost=0.08, late=0.06),
        failing=0.1,
    )


def lossy(seed: int) -> Scenario:
    """A crowded world whose workers live, while every third request is lost or late."""
    faults = frozenset({Fault.LOST, Fault.LATE})
    return replace(crowded(seed), faults=faults, odds=Odds(lost=0.2, late=0.1))


def newer(seed: int) -> Scenario:
    """A crowded world whose workers stand still, while newer ones write items."""
    faults = frozenset({Fault.PAUSE, Fault.VERSIONS})
    return replace(crowded(seed), faults=faults, trouble_every=4.0)


def closed(seed: int) -> Scenario:
    """A crowded world with times without runs."""
    scenario = crowded(seed)
    items = tuple(replace(one, spec=replace(one.spec, blackout=BLACKOUT)) for one in scenario.items)
    return replace(scenario, items=items)


def limited(seed: int) -> Scenario:
    """Four workers with limits across them; they are killed, stand still, are cut off."""
    faults = frozenset({Fault.KILL, Fault.PAUSE, Fault.PARTITION, Fault.LOST, Fault.LATE})
    return Scenario(
        seed=seed,
        items=(*SCARCES, *CROWD[:2]),
        workers=4,
        hours=0.25,
        slots=4,
        shards=1 + seed % 2,
        cycle=timedelta(seconds=20),
        faults=faults,
        trouble_every=20.0,
        odds=Odds(lost=0.04, late=0.04),
    )


def _full(seed: int) -> Scenario:
    """One worker with two slots, that is killed now and then and has more to do than it can."""
    return Scenario(
        seed=seed,
        items=NARROWS if seed % 10 == 4 else FULL,
        workers=1,
        hours=0.25,
        slots=2,
        cycle=timedelta(seconds=30),
        faults=frozenset({Fault.KILL}),
        trouble_every=120.0,
    )


def unanswered(seed: int) -> Scenario:
    """Three workers that walk each second, and many replies are lost. No run saves: a save that is
    answered shows that the account is there, and a walk need not find it out.
    """
    return Scenario(
        seed=seed,
        items=(*CROWD, *FULL),
        workers=3,
        hours=0.1,
        cycle=timedelta(seconds=1),
        faults=frozenset({Fault.LOST}),
        odds=Odds(lost=0.4),
        saving=0.0,
    )


# ---- worlds with groups and elections


def by_workers(seed: int) -> Scenario:
    """Four workers share thirteen partitions; they are killed and replaced, and all is well again
    between two of these.
    """
    return _sharing(seed, frozenset({Fault.KILL, Fault.REDEPLOY}), every=60.0)


def without_a_store(seed: int) -> Scenario:
    """Workers are killed or stand still, and the store is away, some for longer than a lease."""
    return _sharing(seed, frozenset({Fault.KILL, Fault.PAUSE, Fault.OUTAGE}), every=40.0)


def away_and_replaced(seed: int) -> Scenario:
    """The store is away for longer than a lease, and workers are replaced about that time."""
    faults = frozenset({Fault.KILL, Fault.OUTAGE, Fault.REDEPLOY})
    return _sharing(seed, faults, every=40.0, lease=15.0)


def by_people(seed: int) -> Scenario:
    """People unlock, cancel, pause and resume partitions and elections."""
    return _sharing(seed, frozenset({Fault.EDIT}), every=10.0)


def paused_and_replaced(seed: int) -> Scenario:
    """People pause partitions and resume them, and workers are killed and replaced."""
    return _sharing(seed, frozenset({Fault.EDIT, Fault.KILL, Fault.REDEPLOY}), every=30.0)


def by_races(seed: int) -> Scenario:
    """Four workers race for partitions over a bus that fails now and then; they are killed and
    replaced.
    """
    return _raced(_sharing(seed, frozenset({Fault.KILL, Fault.BUS}), every=60.0))


def raced_without_a_store(seed: int) -> Scenario:
    """As `without_a_store`, with partitions that are raced for."""
    return _raced(without_a_store(seed))


def _raced(scenario: Scenario) -> Scenario:
    group, election = scenario.shared
    assert isinstance(group, SimulatedGroup)
    shared = (replace(group, balance=Balance.GRAB), election)
    return replace(scenario, hours=0.5, shared=shared)


def _sharing(seed: int, faults: frozenset[Fault], *, every: float, lease: float = 9.0) -> Scenario:
    return Scenario(
        seed=seed,
        items=CROWD[:1],
        workers=4,
        hours=0.25,
        cycle=timedelta(seconds=30),
        faults=faults,
        trouble_every=every,
        failing=0.0,
        shared=(
            SimulatedGroup(name="clicks", partitions=13, lease=lease, drain=2.0, saves=30.0),
            SimulatedElection(name="nightly", lease=lease),
        ),
    )


def crowded_world(
    seed: int, verbs: Sequence[str] = VERBS, draw: Callable[[int], Scenario] = crowded
) -> World:
    """`verbs` are what people ask for most."""
    scenario = draw(seed)
    drawn, chance = draw_plan(scenario).injections, random.Random(seed)
    more = _besides(scenario.hours * 3600.0, chance, verbs) if scenario.faults == ALL else ()
    plan = sorted([*drawn, *more], key=lambda one: one.at)
    return World(scenario, FaultPlan(injections=tuple(plan)))


def _besides(end: float, chance: random.Random, verbs: Sequence[str]) -> Iterator[Injection]:
    """What happens besides the plan that was drawn, every five seconds on the mean."""
    at = 0.0
    while (at := at + chance.expovariate(1 / 5.0)) < end:
        draw = chance.random()
        if draw < 0.55:
            yield from _concurrent_requests(at, chance, verbs)
        elif draw < 0.60:
            yield from _rush(at, chance, [verb for verb in verbs if verb in RUSHED])
        else:
            yield _stands_still(at, chance)


def _concurrent_requests(
    at: float, chance: random.Random, verbs: Sequence[str]
) -> Iterator[Injection]:
    """People ask for one, two or three kinds of things of one item: within milliseconds, or as
    after a request without an answer.
    """
    number = chance.randrange(len(CROWD))
    some = [chance.choice(verbs) for _ in range(chance.choice((2, 2, 3)))]
    within = chance.choice((0.03, 0.03, 10.0))
    for _ in range(chance.choice((2, 3, 4))):
        yield _asks(at + chance.uniform(0.0, within), number, chance.choice(some), chance)


def _rush(at: float, chance: random.Random, verbs: Sequence[str]) -> Iterator[Injection]:
    """Something is done to an item again and again."""
    number = chance.randrange(len(CROWD))
    for turn in range(30 if verbs else 0):
        yield _asks(at + 0.1 * turn, number, chance.choice(verbs), chance)


def _asks(at: float, number: int, verb: str, chance: random.Random) -> Injection:
    detail = chance.random()
    return Injection(at=at, fault=Fault.EDIT, target=number, seconds=detail, how=verb)


def _stands_still(at: float, chance: random.Random) -> Injection:
    """A worker does nothing for about a lease."""
    return Injection(
        at=at,
        fault=Fault.PAUSE,
        target=chance.randrange(3),
        seconds=chance.uniform(1.0, 20.0),
        how=chance.choice([when.value for when in TrapPoint]),
    )
