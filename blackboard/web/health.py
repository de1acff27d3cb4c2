"""The page that says whether all is well: what is wrong, numbers of a day, what the board costs.

A board of elections that cannot be read is one of the things that are wrong.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.requests import Request

from blackboard import cost
from blackboard.display.health import Alarm, Around, alarms_in, coordinator_in
from blackboard.display.sharing import read_leaders
from blackboard.model import Run
from blackboard.protocol.groups import read_groups
from blackboard.protocol.leaders import Elections
from blackboard.protocol.reading import BoardStatus
from blackboard.rules.transitions import FAILING
from blackboard.schedule.times import parse_duration
from blackboard.web.charts import numbers_of, sparkline
from blackboard.web.recent import OF_AN_ITEM
from blackboard.web.runs import FAILING_NAMES, MOST_COUNTED, RunFilter, items_of, newest_of
from blackboard.web.site import Site, WebPage

LATELY = timedelta(hours=24)
"""What counts as health now."""
SLICES = 24
"""Of that time, in a sparkline."""
LARGEST_EXAMINED = 5_000
"""Items of a board that is examined, and whose cost is computed, while a page waits."""


async def alarms_on(
    site: Site, now: datetime, leaders: tuple[Elections, str]
) -> Sequence[Alarm] | None:
    """What is wrong, as `check` finds it; None: the board is too large to examine for a page."""
    snapshot = site.snapshot
    items = [one.status for one in snapshot.entries.values()]
    if len(items) > LARGEST_EXAMINED:
        return None
    groups = await read_groups(site.board)
    around = Around(
        present=snapshot.present, paused=snapshot.paused, groups=groups, leaders=leaders
    )
    return alarms_in(site.board, BoardStatus(statuses=items, now=now), around)


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
    if len(items) > LARGEST_EXAMINED:
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
    since, step = now - LATELY, LATELY / SLICES
    leaders = await read_leaders(site.board)
    runs, alarms = await asyncio.gather(
        newest_of(site, RunFilter(since=since), limit=MOST_COUNTED), alarms_on(site, now, leaders)
    )
    elections, trouble = leaders
    slices: list[list[Run]] = [[] for _ in range(SLICES)]
    by_type: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        slices[min(max(int((run.stop - since) / step), 0), SLICES - 1)].append(run)
        by_type[run.type].append(run)
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
            "of_all": MOST_COUNTED if len(runs) == MOST_COUNTED else None,
            "bad": FAILING_NAMES,
            "cost": expected_cost(site, now),
        },
    )
