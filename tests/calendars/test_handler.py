"""The handler that the job ships, as a worker calls it."""

import json
import logging
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from blackboard import BadInput, Context, Item
from blackboard.errors import BlackboardError
from jobs.calendars import aggregate
from tests.calendars.serving import Answer, serving
from tests.calendars.support import calendar, event

ONE = calendar(event("1", "One"))


class Held:
    """A lock that is not lost."""

    reason = ""

    def __bool__(self) -> bool:
        return False

    def wait(self, timeout: float | None = None) -> bool:
        return threading.Event().wait(timeout)


def context(progress: list[tuple[int, int]], **settings: Any) -> Context:
    return Context(
        due=datetime(2026, 8, 21, 12, tzinfo=UTC),
        fence=3,
        fenced=True,
        attempt=1,
        worker="host:1:abc",
        settings=settings,
        log=logging.getLogger("calendars"),
        lost=Held(),
        stopping=Held(),
        progress=lambda done, total: progress.append((done, total)),
        warn=lambda _text: None,
        save=lambda _value: None,
    )


def test_an_item_becomes_a_calendar_in_its_folder(tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    with serving({"/one.ics": Answer(ONE)}) as site:
        params = {"feeds": [site.url("/one.ics")], "out": str(tmp_path), "timezone": "Europe/Paris"}
        result = aggregate(Item("a/b", "calendars", params), context(progress, allow=["127.0.0.1"]))
    assert json.loads(json.dumps(result)) == result
    assert (result["ok"], result["events"], result["from"]) == (1, 1, "2026-08-21")
    assert progress == [(1, 1)]
    assert json.loads((tmp_path / "a=2Fb.report.json").read_bytes())["fence"] == 3


def test_without_the_setting_nothing_of_this_machine_is_fetched(tmp_path: Path) -> None:
    with serving({"/one.ics": Answer(ONE)}) as site:
        params = {"feeds": [site.url("/one.ics")], "out": str(tmp_path)}
        with pytest.raises(BlackboardError, match=r"refused: 127\.0\.0\.1 is a loopback address"):
            aggregate(Item("town", "calendars", params), context([]))
        assert not site.asked


def test_bad_params_and_settings_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"params\.feeds"):
        aggregate(Item("town", "calendars", {"out": str(tmp_path)}), context([]))
    params = {"feeds": ["https://a.org/"], "out": str(tmp_path)}
    with pytest.raises(BadInput, match=r"jobs\.calendars\.allow"):
        aggregate(Item("town", "calendars", params), context([], allow=[7]))
    assert list(tmp_path.iterdir()) == []
