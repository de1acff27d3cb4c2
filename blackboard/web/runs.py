"""The pages about runs of many items: the list, the timeline, failures by hour.

They are made of the newest runs of each item, as `recent.py` keeps them; where an address names one
item, of its whole history.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request

from blackboard.display.run_queries import RunCursor, RunQuery, newest_runs
from blackboard.inputs import LONGEST_TEXT, number_of
from blackboard.model import Item, Outcome, Run, replace
from blackboard.phrases import brief
from blackboard.rules.next_run import TOLERANCE
from blackboard.rules.transitions import FAILING
from blackboard.web.charts import RunSpan, first_of_days, heat_map, spans_of, timeline
from blackboard.web.filters import LONGEST, toggled, values_of
from blackboard.web.recent import OF_AN_ITEM
from blackboard.web.site import Site, zone_of

MOST_DRAWN = 2_000
"""Runs of a timeline."""
MOST_COUNTED = 20_000
"""Runs of a page of numbers: each item whose runs are not kept is one more read of the store."""
OF_A_LIST = 100
SPANS = (0.25, 1, 3, 6, 12, 24, 72, 168)
"""Hours of a timeline."""
DAYS = 14
"""Of the picture of failures."""
FAILING_NAMES = sorted(outcome.value for outcome in FAILING)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter(RunQuery):
    """Which runs a page shows, as its address says."""

    item: str = ""
    """The id of one item; "": all."""
    search: str = ""

    @classmethod
    def of(cls, query: QueryParams) -> "RunFilter":
        """From the names and values of an address; what makes no sense is left out. Raises
        BadInput for more values of a name than a page can mean.
        """
        known, search = {outcome.value for outcome in Outcome}, query.get("q", "").strip()[:LONGEST]
        return cls(
            item=query.get("id", "")[:LONGEST_TEXT],
            search=search,
            pattern=re.compile(re.escape(search), re.IGNORECASE) if search else None,
            types=values_of(query, "type"),
            outcomes=[Outcome(name) for name in values_of(query, "outcome") if name in known],
            since=moment_in(query.get("since", "")),
            until=moment_in(query.get("until", "")),
            after=cursor_in(query.get("after", "")),
        )

    def pairs(self, **changes: str) -> list[tuple[str, str]]:
        """The names and values of the address of the first page, some of them changed."""
        pairs: list[tuple[str, str]] = [
            ("id", self.item),
            *(("type", type_) for type_ in self.types),
            *(("outcome", outcome) for outcome in self.outcomes),
            ("q", self.search),
            ("since", self.since.isoformat() if self.since else ""),
            ("until", self.until.isoformat() if self.until else ""),
        ]
        kept = [pair for pair in pairs if pair[0] not in changes]
        return [pair for pair in (*kept, *changes.items()) if pair[1]]

    def toggled(self, outcome: str) -> list[tuple[str, str]]:
        """The address with one of its outcomes more, or without it."""
        return replace(self, outcomes=toggled(self.outcomes, Outcome(outcome))).pairs()


def moment_in(text: str) -> datetime | None:
    """A time in an address, with its offset; None for any other text."""
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+"))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None and 1970 < moment.year < 9000 else None


def cursor_text(cursor: RunCursor) -> str:
    """The place of a run in a list, as an address says it."""
    stop, item_id, fence = cursor
    return f"{-stop},{-fence},{item_id}"


def cursor_in(text: str) -> RunCursor | None:
    """The place that an address says; None for any other text."""
    stop, _, rest = text.partition(",")
    fence, _, item_id = rest.partition(",")
    number = number_of(fence, digits=12)
    try:
        time = float(stop)
    except ValueError:
        return None
    return (-time, item_id, -number) if number is not None and math.isfinite(time) else None


async def page_of(
    site: Site, item: Item | None, query: RunQuery, *, size: int
) -> tuple[list[Run], str]:
    """The newest runs that match, and the place after which there may be more, else "": of one item
    from its whole history, of all items the newest few of each.
    """
    limit = size + 1  # one more shows whether there are more
    if item is None:
        present = (entry.item for entry in site.snapshot.entries.values())
        items = [*present, *site.snapshot.removed.values()]  # whose runs stay
        listed, place = await site.runs.newest(items, query, limit=limit)
    else:
        listed, place = await newest_runs(site.board, [item], query, limit=limit)
    if len(listed) > size:
        place = listed[size - 1][0]
    return [run for _, run in listed[:size]], cursor_text(place) if place else ""


async def newest_of(site: Site, filters: RunFilter, *, limit: int) -> tuple[list[Run], str]:
    """As `page_of`, by the address of a page."""
    item = await site.board.item(filters.item) if filters.item else None
    if filters.item and item is None:
        return [], ""
    return await page_of(site, item, filters, size=limit)


async def runs_page(site: Site, request: Request) -> dict[str, Any]:
    await site.snapshot.fresh()
    filters = RunFilter.of(request.query_params)
    runs, after = await newest_of(site, filters, limit=OF_A_LIST)
    return {
        "filters": filters,
        "runs": runs,
        "after": after,
        "outcomes": [outcome.value for outcome in Outcome],
        "page_size": OF_A_LIST,
        "of_an_item": OF_AN_ITEM,
    }


def runs_signature(site: Site, request: Request) -> object:
    """What these pages depend on: one item, or all."""
    item_id = request.query_params.get("id")
    return site.snapshot.get(item_id) if item_id else site.snapshot.version


async def timeline_page(site: Site, request: Request) -> dict[str, Any]:
    """The runs of some hours, side by side: who wrote which item when."""
    await site.snapshot.fresh()
    query = request.query_params
    by = "worker" if query.get("by") == "worker" else "item"
    hours = _hours(query.get("hours", ""))
    now = await site.board.table.now()
    given = moment_in(query.get("until", ""))
    until = min(given, now) if given else now
    span = timedelta(hours=hours)
    filters = replace(
        RunFilter.of(query), since=until - span, until=None, after=None, begun_by=until, outcomes=()
    )
    runs, after = await newest_of(site, filters, limit=MOST_DRAWN)
    spans = spans_of(runs) + _under_way(site, filters, now)
    picture = await site.compute(
        partial(timeline, spans, since=until - span, until=until, by=by, zone=zone_of(request))
    )
    return {
        "picture": picture,
        "by": by,
        "hours": hours,
        "spans": SPANS,
        "since": until - span,
        "until": until,
        "is_now": given is None,
        "earlier": until - span / 2,
        "later": until + span / 2 if until + span / 2 < now else None,
        "filters": filters,
        "is_cut": bool(after),
        "runs": len(runs),
        "most": MOST_DRAWN,
    }


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        return 1.0
    return min(max(hours, 1 / 60), 24 * 31.0) if hours == hours else 1.0  # noqa: PLR0124 - not NaN


def _under_way(site: Site, filters: RunFilter, now: datetime) -> list[RunSpan]:
    """The runs that have not ended: none of them has a text yet that a search could find."""
    spans: list[RunSpan] = []
    if filters.search:
        return spans
    for entry in site.snapshot.entries.values():
        item = entry.item
        if (
            not item.running
            or item.start is None
            or (filters.types and item.type not in filters.types)
            or (filters.item and item.id != filters.item)
        ):
            continue
        took = brief(max((now - item.start).total_seconds(), 0.0))
        spans.append(
            RunSpan(
                id=item.id,
                worker=item.owner,
                fence=item.fence,
                start=item.start,
                stop=now,
                style="lost" if entry.status.stale else "busy",
                words=f"{item.id}: running for {took}, {item.owner}",
            )
        )
    return spans


@dataclass(slots=True)
class ItemFailures:
    id: str
    since: datetime
    """When the first of those stopped that are counted."""
    runs: int = 0
    failed: int = 0


async def failures_page(site: Site, request: Request) -> dict[str, Any]:
    """How many runs failed, by day and hour, and of which items."""
    await site.snapshot.fresh()
    now, zone = await site.board.table.now(), zone_of(request)
    since = first_of_days(DAYS, until=now, zone=zone)
    named = RunFilter.of(request.query_params)
    filters = replace(named, since=since, until=now + TOLERANCE, after=None, outcomes=())
    runs, after = await newest_of(site, filters, limit=MOST_COUNTED)
    items = await site.compute(_failures_of, runs)
    failed = [item for item in items if item.failed]
    return {
        "days": await site.compute(partial(heat_map, runs, until=now, days=DAYS, zone=zone)),
        "worst": sorted(failed, key=lambda item: (-item.failed, item.id))[:20],
        "runs": len(runs),
        "failed": sum(item.failed for item in failed),
        "of_an_item": OF_AN_ITEM,
        "is_cut": bool(after),
        "most": MOST_COUNTED,
        "bad": FAILING_NAMES,
    }


def _failures_of(runs: Iterable[Run]) -> list[ItemFailures]:
    by_item: dict[str, ItemFailures] = {}
    for run in runs:
        item = by_item.setdefault(run.id, ItemFailures(run.id, run.stop))
        item.runs += 1
        item.failed += run.outcome in FAILING
        item.since = min(item.since, run.stop)
    return [*by_item.values()]
