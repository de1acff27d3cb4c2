"""Workers that are killed with SIGKILL, at any moment: nothing is lost but the run in flight.

By default a short version runs. The long form of the proof makes it eight
workers, 2,000 items and a kill every second for half a minute.
"""

import random
import signal
import time
from collections import Counter

import pytest

from blackboard.model import Item, Outcome, Run
from blackboard.protocol.board_table import BoardTable
from tests.proof.chaos.verdict import was_freed
from tests.proof.form import LONG
from tests.support.processes import Site, Started, whole_lines

WORKERS, ITEMS, KILLS = (8, 2000, 30) if LONG else (4, 200, 6)
TIMES = 20 if LONG else 6
SECONDS = 1.2 if LONG else 0.6
"""That each handler takes: the items last about as long as the killing."""


def everything(site: Site) -> list[tuple[Item, list[Run]]]:
    """All items with their histories, the oldest run first."""

    async def found(board: BoardTable) -> list[tuple[Item, list[Run]]]:
        return [
            (item, [run async for run in board.runs(item.id)][::-1]) async for item in board.items()
        ]

    return site.run(found)


def problems(item: Item, runs: list[Run]) -> list[str]:
    """What must not be in the history of an item."""
    fences = [run.fence for run in runs]
    freed = {run.fence + 1 for run in runs if was_freed(run)}
    granted = [fence for fence in range(1, item.fence + 1) if fence not in freed]
    found = [] if fences == granted else [f"fences {fences} of {item.fence}"]
    if item.running:
        found.append("still running")
    if not runs:
        found.append("no run")
    if len({run.nonce for run in runs}) != len(runs):
        found.append("two runs under one claim")
    good = Counter(run.slot for run in runs if run.outcome is Outcome.OK)
    found += [f"{count} ok runs for {slot}" for slot, count in good.items() if count > 1]
    found += [
        f"run {run.fence} of {run.worker} was let go with the result {run.result}"
        for run in runs
        if run.result and not (f'"{run.worker}"' in run.result and f":{run.fence}," in run.result)
    ]
    return [f"{item.id}: {problem}" for problem in found]


def twice(site: Site) -> list[str]:
    """What began twice under one fence: the handlers' own notes, not the board's."""
    lines = whole_lines(site.folder / "notes")
    return [
        line
        for line, count in Counter(line.rsplit(" ", 1)[0] for line in lines).items()
        if count > 1
    ]


@pytest.mark.case("KI01", "S1", "S2", "S3", "L1")
@pytest.mark.timeout(400)
def test_workers_killed_all_the_time_lose_nothing(site: Site) -> None:
    """Every item has a run, none two good ones for one slot, no claim is let go by another, the
    history has one run for each fence, and the board is whole.
    """
    share = ITEMS // 4
    site.add(
        *(f"quick-{n}" for n in range(2 * share)), type_="quick", stale_after="3s", seconds=SECONDS
    )
    site.add(
        *(f"flaky-{n}" for n in range(share)), type_="flaky", stale_after="3s", seconds=SECONDS / 3
    )
    site.add(
        *(f"plain-{n}" for n in range(share)),
        type_="quick-plain",
        stale_after="3s",
        seconds=SECONDS,
    )
    workers = [site.worker() for _ in range(WORKERS)]
    for worker in workers:
        site.works(worker)
    chance = random.Random(20090615)
    for _ in range(KILLS):
        time.sleep(1.0)
        victim = workers.pop(chance.randrange(len(workers)))
        victim.send(signal.SIGKILL)
        assert victim.ended() == -signal.SIGKILL, victim.text
        workers.append(site.worker())
    assert site.worker("--until-idle").ended(seconds=200) == 0
    for worker in workers:
        site.works(worker).send(signal.SIGTERM)
    assert [worker.ended() for worker in workers] == [0] * WORKERS
    told = everything(site)
    assert len(told) == 4 * share
    assert [problem for item, runs in told for problem in problems(item, runs)] == []
    assert twice(site) == []
    assert Counter(run.outcome for _, runs in told for run in runs)[Outcome.ABANDONED] > 0
    assert site.doctor()["findings"] == [] or site.doctor()["clean"]
    assert traceback_in(site.started) == []


def traceback_in(started: list[Started]) -> list[str]:
    return [one.text for one in started if "Traceback" in one.text]


@pytest.mark.case("KI03", "S1", "L1")
@pytest.mark.timeout(400)
def test_a_worker_killed_while_it_claims_and_releases(site: Site) -> None:
    """Again and again, at another moment each time: the next one finishes what is left."""
    ids = [f"item-{n}" for n in range(30 * TIMES)]
    site.add(*ids, type_="quick", stale_after="3s")
    chance = random.Random(7)
    for _ in range(TIMES):
        worker = site.works(site.worker(slots=20))
        time.sleep(chance.random() * 0.15)
        worker.send(signal.SIGKILL)
        worker.ended()
    assert site.worker("--until-idle", slots=50).ended() == 0
    told = everything(site)
    assert [problem for item, runs in told for problem in problems(item, runs)] == []
    assert all(runs[-1].outcome is Outcome.OK for _, runs in told)
    assert twice(site) == []
    assert site.doctor()["clean"]
