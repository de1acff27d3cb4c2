"""The pages that show the board: items, one item, workers, leases, leaders, reports, actions.

Each is a function that reads what its template shows; with `template` and `title`, where they are
others than its name says.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from math import inf
from typing import Any, NamedTuple

from starlette.requests import Request

from blackboard.clock import Clock
from blackboard.display.report import (
    NoReport,
    ReportColumn,
    read_report,
    report_numbers,
    report_table,
    words_of,
)
from blackboard.display.sharing import (
    election_problem,
    group_problem,
    is_late,
    last_move,
    read_leaders,
    unreadable_words,
)
from blackboard.errors import BadInput, Missing, MissingRun
from blackboard.inputs import number_of
from blackboard.model import ANNOUNCE_EVERY, LOST_AFTER, Action, Item, State, replace
from blackboard.protocol.actions import actions
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.groups import read_groups
from blackboard.protocol.keys import leaders_board
from blackboard.protocol.members import lost_since, with_silence, workers
from blackboard.protocol.planning import settings_of
from blackboard.records import item_record, run_summary
from blackboard.rules.status import STATES
from blackboard.rules.upcoming import upcoming
from blackboard.schedule.words import describe
from blackboard.spec import RunSettings, decode_spec
from blackboard.tasks import in_thread
from blackboard.web.actions import EDITABLE, OF_MANY, SAID, VERBS
from blackboard.web.charts import duration_bars, numbers_of, percentile, sparkline
from blackboard.web.filters import PAGE, Filter, facet_counts
from blackboard.web.site import Site
from blackboard.web.snapshot import Entry
from blackboard.why import explained, no_schedule

COLUMNS = (
    ("id", "id"),
    ("type", "type"),
    ("schedule", "schedule"),
    ("start", "start"),
    ("stop", "stop"),
    ("running", ""),
    ("outcome", "outcome"),
    ("next", "next"),
    ("worker", "worker"),
)
"""Titles of the board's table, and what each sorts by."""
MINOR = {"type", "schedule", "start", "stop", "worker"}
"""Columns that a narrow screen leaves out."""
MOST_TYPES = 12
"""Types, and tags, that are offered as filters; a search finds the others."""
RUNS_OF_AN_ITEM = 50
NEXT_TIMES = 10
LONGEST_SEARCH = 0.2
"""Seconds after which no more next times are computed: those of a rare rule take long."""
MOST_ROWS = 2_000
"""Of a report: the worst come first in one of `calendars`, which has no more."""
SLOW = 2.0
"""A run that lasts so many times the usual is slow, if the usual is more than a second."""


async def board_page(site: Site, request: Request) -> dict[str, Any]:
    snapshot = site.snapshot
    await snapshot.fresh()
    filters = Filter.of(request.query_params)
    chosen = await site.chooser.page(filters)
    lost = lost_since(snapshot.present)
    lines = [(with_silence(entry.status, lost), entry.labels.tags) for entry in chosen.entries]
    types = facet_counts(snapshot.counts, "type")
    tags = facet_counts(snapshot.counts, "tag")
    return {
        "filters": filters,
        "chosen": chosen,
        "lines": lines,
        "columns": COLUMNS,
        "minor": MINOR,
        "bulk": OF_MANY,
        "total": len(snapshot.entries),
        "states": [(state, snapshot.counts["state", state]) for state in STATES],
        "types": _offered(types, filters.types),
        "tags": _offered(tags, filters.tags),
        "more_types": max(len(types) - MOST_TYPES, 0),
        "more_tags": max(len(tags) - MOST_TYPES, 0),
    }


def by_version(site: Site, request: Request) -> object:
    """What a page depends on that shows all items."""
    return site.snapshot.version


def by_second(site: Site, request: Request) -> object:
    """What a page depends on that shows more than items: it is made anew each second."""
    return int(site.board.clock.monotonic())


def _offered(counted: Sequence[tuple[str, int]], chosen: Sequence[str]) -> list[tuple[str, int]]:
    """The most frequent values, and all that are chosen."""
    first = list(counted[:MOST_TYPES])
    names = {name for name, _ in first}
    counts = dict(counted)
    return first + [(name, counts.get(name, 0)) for name in chosen if name not in names]


# ---- an item


async def item_page(site: Site, request: Request) -> dict[str, Any]:
    """All that there is to be known of an item. Raises Missing."""
    item = await _item_of(site, request)
    runs = [run async for run in site.board.runs(item.id, limit=RUNS_OF_AN_ITEM)]
    usual = percentile(sorted(run.duration for run in runs), 50)
    slow_from = SLOW * usual if usual > 1.0 else inf
    done = SAID.get(request.query_params.get("done", ""), "")
    if item.state is State.REMOVED:
        shown = {"item": item, "done": done, "runs": runs, "slow_from": slow_from}
        return {"template": "removed.html", "title": item.id, **shown}
    present = await workers(site.board)
    status, why = await explained(site.board, item, present)
    settings, problem = _settings(site, item)
    labels = site.board.labels(item)
    return {
        "title": item.id,
        "item": item,
        "status": status,
        "labels": labels,
        "record": item_record(status, labels),
        "why": why,
        "schedule": describe(settings.schedule) if settings.schedule else problem,
        "coming": await _coming(site, item, settings),
        "own": own_options(item),
        "acts": [*VERBS],
        "nonce": site.board.chance.nonce(),
        "editable": EDITABLE,
        "done": done,
        "runs": runs,
        "slow_from": slow_from,
        "bars": duration_bars(runs),
        "spark": sparkline([run.lag for run in reversed(runs)], width=120, height=24),
        "numbers": numbers_of(runs),
    }


async def _item_of(site: Site, request: Request) -> Item:
    """The item that an address names, or its tombstone. Raises Missing."""
    item_id = request.query_params.get("id", "")
    item = await site.board.item(item_id) if item_id else None
    if item is None:
        raise Missing(item_id)
    return item


def item_signature(site: Site, request: Request) -> object:
    """What the page depends on: its item and the workers that could take it."""
    present = tuple((worker.owner, worker.lost, worker.types) for worker in site.snapshot.present)
    return site.snapshot.get(request.query_params.get("id", "")), present


def own_options(item: Item) -> dict[str, str]:
    """What the item itself says of how it is run, as an edit takes it."""
    try:
        spec = decode_spec(item.spec)
    except ValueError:
        return {}
    options = {name: getattr(spec, name) for name in EDITABLE}
    return {name: str(value) for name, value in options.items() if value is not None}


class ComingTimes(NamedTuple):
    times: list[datetime]
    is_cut: bool
    """Whether to compute more takes too long."""


async def next_times(site: Site, item: Item, settings: RunSettings, *, count: int) -> ComingTimes:
    """The next times of an item, so many at the most. Raises BadInput."""
    times = upcoming(item, settings, now=await site.board.table.now())
    async with site.searching:
        return await in_thread(_next_times, times, count, site.board.clock)


async def _coming(site: Site, item: Item, settings: RunSettings) -> ComingTimes:
    """None where they cannot be computed: what `why` says has the reason."""
    try:
        return await next_times(site, item, settings, count=NEXT_TIMES)
    except BadInput:
        return ComingTimes([], is_cut=False)


def _next_times(times: Iterator[datetime], count: int, clock: Clock) -> ComingTimes:
    until = clock.monotonic() + LONGEST_SEARCH
    coming: list[datetime] = []
    for moment in islice(times, count):
        coming.append(moment)
        if clock.monotonic() >= until:
            return ComingTimes(coming, len(coming) < count)
    return ComingTimes(coming, is_cut=False)


def _settings(site: Site, item: Item) -> tuple[RunSettings, str]:
    """The settings as they are resolved here, and words for why there is no schedule."""
    try:
        settings = settings_of(site.board, item, item.spec)
    except (BadInput, ValueError) as problem:
        return RunSettings(), str(problem)
    return settings, no_schedule(item, settings)


async def run_page(site: Site, request: Request) -> dict[str, Any]:
    """One run in full. Raises Missing."""
    item_id = request.query_params.get("id", "")
    fence = request.query_params.get("fence", "")
    run = None
    if item_id and (number := number_of(fence, digits=12)) is not None:
        run = await site.board.run(item_id, number)
    if run is None:
        raise MissingRun(item_id, fence)
    return {"title": f"{run.id}, run {run.fence}", "run": run, "record": run_summary(run)}


# ---- workers, partitions, elections


async def workers_page(site: Site, request: Request) -> dict[str, Any]:
    """The workers, with what each has in its slots."""
    await site.snapshot.fresh()
    running: dict[str, list[Entry]] = {}
    for entry in site.snapshot.in_order():
        if entry.item.running:
            running.setdefault(entry.item.owner, []).append(entry)
    return {
        "workers": site.snapshot.present,
        "running": running,
        "announce_every": ANNOUNCE_EVERY,
        "lost_after": LOST_AFTER,
        "left": sorted(running.keys() - {worker.owner for worker in site.snapshot.present}),
    }


def workers_signature(site: Site, request: Request) -> object:
    present = tuple((replace(worker, age=0.0), worker.lost) for worker in site.snapshot.present)
    return present, site.snapshot.version


async def leases_page(site: Site, request: Request) -> dict[str, Any]:
    """The groups of partitions, and the partitions of one."""
    name = request.query_params.get("group", "")
    groups = await site.shared(read_groups, site.board)
    chosen = next((group for group in groups if group.name == name), None)
    return {
        "groups": groups,
        "chosen": chosen,
        "problem_of": group_problem,
        "last_move": last_move,
    }


async def leaders_page(site: Site, request: Request) -> dict[str, Any]:
    elections = await site.shared(read_leaders, site.board)
    damaged = {
        status.item.id: why for status in elections.statuses if (why := election_problem(status))
    }
    lost = unreadable_words(leaders_board(site.board.name), elections.unreadable)
    return {
        "elections": elections.statuses,
        "late": {status.item.id for status in elections.statuses if is_late(status, elections.now)},
        "damaged": damaged,
        "problems": [*filter(None, (elections.trouble, *damaged.values(), lost))],
    }


# ---- a report


async def report_page(site: Site, request: Request) -> dict[str, Any]:
    """The report that the last run of an item wrote. Raises Missing, NoReport."""
    item = await _item_of(site, request)
    report: dict[str, Any] = {}
    problem = ""
    try:
        report = await read_report(site.board, item)
    except NoReport as missing:
        problem = str(missing)
    columns, all_rows = await site.compute(report_table, report)
    rows = all_rows[:MOST_ROWS]
    return {
        "title": f"{item.id}: report",
        "item": item,
        "problem": problem,
        "numbers": report_numbers(report),
        "columns": [
            (column, all(type(row.values[n]) in {int, float, type(None)} for row in rows))
            for n, column in enumerate(columns)
        ],
        "lines": [
            (row.level, [_report_cell(*cell) for cell in zip(row.values, columns, strict=True)])
            for row in rows
        ],
        "left_out": len(all_rows) - len(rows),
    }


def _report_cell(value: Any, column: ReportColumn) -> tuple[datetime | None, str]:
    if isinstance(value, datetime):
        return value, ""
    return None, words_of(value, signed=column.signed)


# ---- what people did


async def actions_page(site: Site, request: Request) -> dict[str, Any]:
    newest = await site.shared(_actions, site.board, of=site.snapshot.changes_here)
    return {"newest": newest}


async def _actions(board: BoardTable) -> list[Action]:
    return await actions(board, limit=PAGE)
