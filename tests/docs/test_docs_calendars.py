"""docs/calendars.md is true: its commands can be called, its settings are taken, its numbers are
the code's.
"""

import json
import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from blackboard.display.report import report_table
from blackboard.settings import load_settings
from jobs.calendars import aggregate, budget
from jobs.calendars.aggregation import _ACCEPTED, _COLUMNS
from jobs.calendars.cache import FOLDER
from jobs.calendars.fetch import TIMEOUTS
from jobs.calendars.harvest import GONE_AFTER, Status
from jobs.calendars.params import LEAST, MEMORY, CalendarParams, JobSettings, job_settings
from jobs.calendars.parser_pool import LONGEST
from jobs.calendars.publish import CACHE, CALENDAR, EVENTS, REPORT
from jobs.calendars.responses import _LONGEST_FRESH, SHARED, Limits
from tests.deploy.files import DEPLOY, calls_in
from tests.deploy.test_promises import understood
from tests.support.pages import page

CALENDARS = page("calendars.md")
LIMITS = Limits()


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", CALENDARS.text, re.MULTILINE | re.DOTALL)
    assert found
    return found


def test_every_command_can_be_called() -> None:
    calls = list(calls_in(CALENDARS.text))
    assert len(calls) > 3
    for args in calls:
        understood(args)


@pytest.mark.parametrize("text", blocks("toml"))
def test_the_settings_that_are_shown_are_taken(tmp_path: Path, text: str) -> None:
    file = tmp_path / "blackboard.toml"
    file.write_text(text, encoding="utf-8")
    load_settings(file)
    job_settings(tomllib.loads(text).get("jobs", {}).get("calendars", {}))


def rows_of(title: str) -> dict[str, str]:
    """The names in the table of a section, each with its default."""
    section = CALENDARS.text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| `?([^|`]*?)`? \|.+\|$", section, re.MULTILINE))


def test_every_param_is_explained() -> None:
    fields = msgspec.structs.fields(CalendarParams)
    rows = rows_of("The params")
    assert list(rows) == [one.encode_name for one in fields]
    assert (rows["days"], rows["out"]) == (str(CalendarParams(feeds="x").days), "out")


def test_every_setting_is_explained_with_its_default() -> None:
    rows = rows_of("The settings")
    (shown,) = [tomllib.loads(text) for text in blocks("toml") if "[jobs" in text]
    assert set(rows) == set(shown["jobs"]["calendars"])
    assert rows["allow"] == "nothing"
    assert job_settings({name: rows[name] for name in ("memory", "deadline")}).deadline == 300
    assert job_settings({"memory": rows["memory"]}).memory == MEMORY == JobSettings().memory
    assert f"{LEAST >> 20}MiB or more" in CALENDARS.prose


def test_every_column_of_the_report_is_explained() -> None:
    for title, _key in _COLUMNS:
        assert f"`{title}`" in CALENDARS.text
    for status in Status:
        assert f"`{status.value}`" in CALENDARS.text


@pytest.mark.parametrize(
    "sentence",
    [
        f"until its server has said so in {GONE_AFTER} runs in a row",
        f"timed out {TIMEOUTS} times is down",
        f"asked for {LIMITS.per_host} feeds at a time",
        f"up to {LIMITS.total:g} s, of which {LIMITS.connect:g} s may go to the connection",
        f"and {LIMITS.read:g} s may pass without a byte",
        f"within {LIMITS.longest_wait:g} s, once",
        f"{LIMITS.redirects} redirects are followed",
        f"{LIMITS.size >> 20} MiB, compressed or not;",
        f"{JobSettings().parse_deadline:g} s of processor time to read",
        f"to read, and {LONGEST:g} s by the clock",
        f"{budget.FEED_EVENTS:,}; {budget.FEED_TEXT >> 20} Mi characters of text",
        f"more than {budget.LONG_SERIES} times does not get the last tenth",
        f"{budget.SERIES_EVENTS:,} in the days asked for and a month more",
        f"in {budget.SERIES_EVENTS // 24 + 1} days)",
        f"{budget.SERIES_SECONDS:g} s of processor time",
        f"{budget.FEED_SECONDS:g} s of processor time |",
        f"Each of the rest has {budget.LAST_SECONDS} s",
        f"After {budget.REFUSED_BEFORE_HURRY} series that were left out",
        f"each has {budget.HURRY_SECONDS} s",
        f"{SHARED / 60:g} minutes where it says nothing",
        f"for {_ACCEPTED.days} days",
        f"`out/{FOLDER}`",
        *(f"`out/davis{ending}`" for ending in (CALENDAR, EVENTS, REPORT, CACHE)),
    ],
)
def test_a_number_or_a_name_is_the_codes(sentence: str) -> None:
    assert sentence in CALENDARS.prose


def test_the_longest_times_are_those_that_are_said() -> None:
    (declared,) = aggregate.__blackboard__  # type: ignore[attr-defined]
    assert f"which is {declared.spec.timeout}" in CALENDARS.prose
    assert _LONGEST_FRESH == 3600, "an hour at the most"


def test_the_report_that_is_shown_is_a_table() -> None:
    (text,) = blocks("json")
    columns, rows = report_table(json.loads(text))
    assert [one.title for one in columns] == ["feed", "read"]
    assert [one.values for one in rows] == [["library", 0.2]]


def test_a_container_of_a_gibibyte_has_room_for_its_cities() -> None:
    """For each city some 100 MiB, for the worker as much, and the readers of all."""
    file = DEPLOY / "kubernetes" / "blackboard.toml"
    settings = tomllib.loads(file.read_text(encoding="utf-8"))
    memory = job_settings(settings["jobs"]["calendars"]).memory >> 20
    assert memory + 100 * settings["types"]["calendars"]["slots"] + 100 < 1024
