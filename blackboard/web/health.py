"""The page that says whether all is well: what is wrong, numbers of a day, what the board costs.

A board of elections that cannot be read is one of the things that are wrong.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.requests import Request

from blackboard import cost
from blackboard.display.health import Alarm, coordinator_in, read_alarms
from blackboard.display.queries import RunQuery
from blackboard.display.sharing import read_leaders
from blackboard.model import Run
from blackboard.protocol.reading import BoardStatus
from blackboard.rules.transitions import FAILING
from blackboard.schedule.times import parse_duration
from blackboard.web.charts import numbers_of, sparkline
from blackboard.web.recent import OF_AN_ITEM
from blackboard.web.runs import FAILING_NAMES, MOST, items_of
from blackboard.web.site import Site, WebPage

LATELY = timedelta(hours=24)
"""What counts as health now."""
SLICES = 24
"""Of that time, in a sparkline."""
LARGEST_EXAMINED = 5_000
"""Items of a board that are examined while a page waits."""
LARGEST_COSTED = 5_000
"""Items of a board whose cost is computed while a page waits."""


async def alarms_in(site: Site, now: datetime) -> Sequence[Alarm] | None:
    """What is wrong, as `check` finds it; None: the board is too large to examine for a page."""
    items = [one.status for one in site.snapshot.entries.values()]
    if len(items) > LARGEST_EXAMINED:
        return None
    found = await read_alarms(site.board, BoardStatus(statuses=items, now=now))
    return found.alarms


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCost:
    """What the board asks of its store, as it is now."""

    runs: float
    """A month."""
    per_run: float
    """Requests, walks and all else included."""
    dollars: float
    """A month, where the store charges as Azure does."""


def expected_cost(site: Site, now: datetime) -> ExpectedCost | None:
    """As `blackboard cost` computes it, with the cycle of the workers that are there; None where
    nothing runs repeatedly, or a board is large.
    """
    items = items_of(site)
    if len(items) > LARGEST_COSTED:
        return None
    alive = [one.member for one in site.snapshot.present if not one.lost]
    usual = parse_duration(site.settings.worker.cycle).total_seconds()
    cycle = min((one.cycle for one in alive), default=usual)
    load = cost.Load(
        rhythms=cost.rhythms_of(items, site.board.resolve, now),
        shards=site.board.shards,
        workers=len(alive) or 1,
        cycle=timedelta(seconds=cycle),
        retention=site.settings.retention,
        coordinator=site.settings.board.coordinator,
    )
    if not load.runs:
        return None
    asked = cost.asked_for(load).total
    return ExpectedCost(
        runs=load.runs,
        per_run=asked / load.runs,
        dollars=cost.bill(asked, size=cost.stored(load)),
    )


async def health_page(site: Site, request: Request) -> WebPage:
    """Whether all is well, in numbers."""
    await site.snapshot.fresh()
    now = await site.board.table.now()
    query = RunQuery(limit=10 * MOST, since=now - LATELY)
    runs, (elections, trouble), alarms = await asyncio.gather(
        site.runs.newest(items_of(site), query), read_leaders(site.board), alarms_in(site, now)
    )
    step = LATELY / SLICES
    slices: list[list[Run]] = [[] for _ in range(SLICES)]
    for run in runs:
        slices[min(max(int((run.stop - (now - LATELY)) / step), 0), SLICES - 1)].append(run)
    by_type: dict[str, list[Run]] = {}
    for run in runs:
        by_type.setdefault(run.type, []).append(run)
    return WebPage(
        template="health.html",
        title="Health",
        values={
            "coordinator": coordinator_in(elections.statuses),
            "trouble": trouble,
            "alarms": alarms,
            "items": site.snapshot.entries,
            "present": site.snapshot.present,
            "numbers": numbers_of(runs),
            "spark_runs": sparkline([len(one) for one in slices], width=160, height=32),
            "spark_failed": sparkline(
                [sum(run.outcome in FAILING for run in one) for one in slices], width=160, height=32
            ),
            "spark_lag": sparkline(
                [numbers_of(one).lag_p99 for one in slices], width=160, height=32
            ),
            "by_type": sorted(
                ((name, numbers_of(one)) for name, one in by_type.items()),
                key=lambda one: (-one[1].runs, one[0]),
            )[:30],
            "counts": site.snapshot.counts,
            "total": len(site.snapshot.entries),
            "since": (now - LATELY).replace(microsecond=0, second=0),
            "of_an_item": OF_AN_ITEM,
            "bad": FAILING_NAMES,
            "cost": expected_cost(site, now),
        },
    )
