"""The page that says whether all is well: what is wrong, numbers of a day, what the board costs.

A board of elections that cannot be read is one of the things that are wrong.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from starlette.requests import Request

from blackboard import cost
from blackboard.display.health import Around, Checked, checked
from blackboard.display.sharing import read_leaders
from blackboard.model import Item, Run
from blackboard.protocol.groups import read_groups
from blackboard.protocol.leaders import Elections
from blackboard.protocol.status import BoardStatus
from blackboard.rules.next_run import TOLERANCE
from blackboard.rules.transitions import FAILING
from blackboard.schedule.times import parse_duration
from blackboard.web.charts import numbers_of, sparkline
from blackboard.web.recent import OF_AN_ITEM
from blackboard.web.runs import FAILING_NAMES, MOST_COUNTED, RunFilter, newest_of
from blackboard.web.site import Site

LATELY = timedelta(hours=24)
"""What counts as health now."""
SLICES = 24
"""Of that time, in a sparkline."""
LARGEST_EXAMINED = 5_000
"""Items of a board that is examined, and whose cost is computed, while a page waits."""
LONGEST_FORECAST = 5.0
"""Seconds after which a cost is not computed further: there may be thousands of rules."""
TOO_LONG = "`blackboard cost` computes it, which takes long."


async def examined(site: Site) -> tuple[Checked | None, Elections]:
    """What is wrong on the board, as `check` finds it, and the elections: examined for all viewers,
    and anew when one has changed items. None: the board is too large to examine for a page.
    """
    return await site.shared(_examined, site, of=site.snapshot.changes_here)


async def _examined(site: Site) -> tuple[Checked | None, Elections]:
    snapshot, elections = site.snapshot, await read_leaders(site.board)
    now, paused = await site.board.table.now(), snapshot.paused
    if len(snapshot.entries) > LARGEST_EXAMINED:
        return None, elections
    around = Around(
        present=snapshot.present,
        paused=paused,
        groups=await read_groups(site.board),
        elections=elections,
    )
    statuses = [entry.status for entry in snapshot.in_order()]
    status = BoardStatus(statuses=statuses, now=now)
    return await site.compute(checked, site.board, status, around), elections


class ExpectedCost(NamedTuple):
    """What the board asks of its store, as it is now."""

    per_run: float
    """Requests, walks and all else included."""
    dollars: float
    """A month, where the store charges as Azure does."""


async def expected_cost(site: Site) -> ExpectedCost | str | None:
    """As `blackboard cost` computes it, with the cycle of the workers that are there; None where
    nothing runs repeatedly, and why it is not computed where the board is large, or it takes too
    long.
    """
    entries = site.snapshot.entries
    if len(entries) > LARGEST_EXAMINED:
        return TOO_LONG
    items, now = [entry.item for entry in entries.values()], await site.board.table.now()
    rhythms = await site.compute(_rhythms, site, items, now)
    if rhythms is None:
        return TOO_LONG
    alive = [worker for worker in site.snapshot.present if not worker.lost]
    usual = parse_duration(site.settings.worker.cycle).total_seconds()
    cycle = min((worker.cycle for worker in alive), default=usual)
    load = cost.Load(
        rhythms=rhythms,
        shards=site.board.shards,
        workers=len(alive) or 1,
        cycle=timedelta(seconds=cycle),
        retention=site.settings.retention,
        coordinator=site.settings.board.coordinator,
    )
    return await site.compute(_cost_of, load)


def _rhythms(site: Site, items: Sequence[Item], now: datetime) -> list[cost.Rhythm] | None:
    """How the items run; None: that takes too long."""
    until, rhythms = site.board.clock.monotonic() + LONGEST_FORECAST, list[cost.Rhythm]()
    for item in items:
        if site.board.clock.monotonic() >= until:
            return None
        rhythms += cost.rhythms_of([item], site.board.resolve, now)
    return rhythms


def _cost_of(load: cost.Load) -> ExpectedCost | None:
    if not load.runs:
        return None
    asked = cost.asked_for(load).total
    return ExpectedCost(asked / load.runs, cost.bill(asked, size=cost.stored(load)))


async def health_page(site: Site, request: Request) -> dict[str, Any]:
    await site.snapshot.fresh()
    now = await site.board.table.now()
    since = now - LATELY
    lately = RunFilter(since=since, until=now + TOLERANCE)
    (runs, after), (check, elections) = await asyncio.gather(
        newest_of(site, lately, limit=MOST_COUNTED), examined(site)
    )
    return {
        "elections": elections,
        "alarms": check and check.alarms,
        "items": site.snapshot.entries,
        "present": site.snapshot.present,
        "counts": site.snapshot.counts,
        "total": len(site.snapshot.entries),
        "since": since.replace(microsecond=0, second=0),
        "of_an_item": OF_AN_ITEM,
        "is_cut": bool(after),
        "most": MOST_COUNTED,
        "bad": FAILING_NAMES,
        "cost": await site.shared(expected_cost, site),
        **await site.compute(_numbers, runs, since),
    }


def _numbers(runs: Sequence[Run], since: datetime) -> dict[str, Any]:
    """What the page says of runs that stopped since then."""
    slices: list[list[Run]] = [[] for _ in range(SLICES)]
    by_type: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        number = int((run.stop - since) / (LATELY / SLICES))
        slices[min(max(number, 0), SLICES - 1)].append(run)
        by_type[run.type].append(run)
    failed = [sum(run.outcome in FAILING for run in part) for part in slices]
    return {
        "numbers": numbers_of(runs),
        "spark_runs": sparkline([len(part) for part in slices], width=160, height=32),
        "spark_failed": sparkline(failed, width=160, height=32),
        "spark_lag": sparkline([numbers_of(part).lag_p99 for part in slices], width=160, height=32),
        "by_type": sorted(
            ((name, numbers_of(of_type)) for name, of_type in by_type.items()),
            key=lambda pair: (-pair[1].runs, pair[0]),
        )[:30],
    }
