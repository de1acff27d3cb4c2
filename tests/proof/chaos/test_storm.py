"""Eight real workers to which everything happens at once, for a while: then the board is whole,
nothing was done twice, and most of what was asked for was done.

For 25 s a store, in the long form of the proof for five minutes. The same `BLACKBOARD_SEED` plans
the same troubles again. Figures are left in `chaos-<store>.json`.
"""

import math
import os
import random
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from blackboard.tables.azurite import Emulator
from tests.proof.chaos.figures import figures_of, tell
from tests.proof.chaos.storm import Storm, storm_over
from tests.proof.chaos.troubles import LEASE, Trouble, planned
from tests.proof.chaos.verdict import histories, noted, problems
from tests.proof.form import LONG
from tests.support.processes import Site, eventually

SECONDS = 300.0 if LONG else 25.0
EVERY = 8
"""Seconds between two runs of an item: more than it takes to notice that a worker is dead."""
ITEMS = 36
"""Few workers could do that many: the others are there to be killed."""
LASTING = LEASE
"""Seconds of a few runs: they have to renew their locks."""
BACK_WITHIN = 30.0
"""Seconds until each worker walks the board, when nothing happens any more."""
LEAST = 80
"""Percent of what the schedules ask for that has to be done."""


def add_items(site: Site) -> None:
    """Two schedules, both kinds of handlers, most runs of 100 to 500 ms; spread evenly."""
    rule = f"FREQ=SECONDLY;INTERVAL={EVERY}"
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("logged", {"every": f"{EVERY}s"}),
        ("logged", {"every": None, "rrule": rule}),
        ("logged-plain", {"every": None, "rrule": rule}),
    ]
    times = {"stale_after": f"{LEASE:g}s", "jitter": f"{EVERY}s"}
    ids = iter(range(ITEMS))
    for seconds, share in ((0.1, 6), (0.5, 5), (LASTING, 1)):
        for type_, schedule in kinds:
            some = [f"item-{number}" for number in islice(ids, share)]
            site.add(*some, type_=type_, seconds=seconds, **times, **schedule)


def all_run_again(site: Site, since: float) -> bool:
    """Whether each item has had a whole run that began after a moment."""
    ran = {one.id for one in noted(site.folder / "log") if one.began > since and one.ended}
    return len(ran) == ITEMS


@pytest.fixture
def emulator(request: pytest.FixtureRequest) -> Callable[[], Emulator]:
    """Starts it only where it is asked for."""

    def started() -> Emulator:
        found: Emulator = request.getfixturevalue("azurite")
        return found

    return started


@pytest.mark.case("S1", "S3", "L1")
@pytest.mark.timeout(SECONDS + 250)
def test_a_storm_costs_no_item_anything_and_the_board_little(
    site: Site,
    lasting_store: str,
    emulator: Callable[[], Emulator],
) -> None:
    """No two effective runs for one item and slot; fences never go back; what ran is in the
    history, which has one row a fence; nobody holds anything in the end, and nobody is left.
    """
    seed = int(os.environ.get("BLACKBOARD_SEED") or random.randrange(1_000_000))
    print(f"BLACKBOARD_SEED={seed}")  # noqa: T201 - told by pytest when it fails
    add_items(site)
    with storm_over(site, emulator, seed=seed) as storm:
        strikes = planned(seed, seconds=SECONDS, partitions=lasting_store == "azurite")
        print(*strikes, sep="\n")  # noqa: T201
        storm.begin()
        begun = time.monotonic()
        storm.rage(strikes, seconds=SECONDS)
        healed = time.monotonic()
        storm.heal()
        eventually(lambda: all_run_again(site, healed), "every item is run again")
        eventually(storm.all_walk_again, "every worker walks again", seconds=BACK_WITHIN)
        storm.end()
        told, notes = histories(site), noted(site.folder / "log")
        found = storm.back + problems(told, notes)
        figures = figures_of(
            storm,
            told,
            notes,
            store=lasting_store,
            seed=seed,
            within=(begun, healed),
            asked=asked_for(healed - begun, lasting_store, storm),
            problems=len(found),
        )
        tell(f"chaos-{lasting_store}", figures)
        doctor = site.doctor(storm.host.environ)
        assert found == []
        assert [one for one in doctor["findings"] if one["grave"]] == []
        assert [one.text for one in site.started if "Traceback" in one.text] == []
        assert figures.percent_done >= LEAST


def asked_for(seconds: float, store: str, storm: Storm) -> int:
    """Runs of each item, at the least. A day that passes at once, where the store's clock is the
    host's, asks for one at once, after which an interval begins anew: half a run on the average.
    """
    days = storm.happened[Trouble.DAY] if store == "sqlite" else 0
    return math.floor(seconds / EVERY + days / 2)
