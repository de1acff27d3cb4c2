"""Type `calendars`: one calendar for a city out of all the iCalendar feeds of its groups.

An item is a city; its params are `CalendarParams`, the settings of `[jobs.calendars]` are
`JobSettings`, and docs/calendars.md explains both.

Feeds are parsed in child processes that can be killed, so no feed can stop a run; a feed that fails
is in the report and spoils nothing. Not promised: that a calendar is complete. What a feed leaves
unclear, such as the zone of a time, is decided in favour of the city.

It needs the packages of the extra `calendars`. They are looked for when this module is imported, so
that a worker without them refuses to start, instead of claiming cities that it cannot run.
"""

import asyncio
from importlib.util import find_spec
from typing import Any

from blackboard import BadInput, Context, Item, handler

from .params import CalendarParams, RunContext, city_of, job_settings

for _package in ("httpx2", "icalendar"):
    if find_spec(_package) is None:
        raise BadInput(
            "jobs",
            f"the type calendars needs the package {_package}",
            "pip install 'blackboard-scheduler[calendars]'",
        )


@handler("calendars", every="8h", timeout="10m", retries=2, fenced=True, params=CalendarParams)
def aggregate(item: Item, ctx: Context) -> dict[str, Any]:
    """Makes the calendar of a city; the result is the summary of the run."""
    from .aggregation import aggregate_city  # noqa: PLC0415 - workers that only list it wait less

    run = RunContext(
        fence=ctx.fence,
        fenced=ctx.fenced,
        log=ctx.log,
        progress=ctx.progress,
        warn=ctx.warn,
        lost=lambda: bool(ctx.lost),
    )
    settings = job_settings(ctx.settings)
    city = city_of(item.id, item.params, due=ctx.due, zone=item.timezone, allowed=settings.policy)
    return asyncio.run(aggregate_city(city, settings=settings, run=run))
