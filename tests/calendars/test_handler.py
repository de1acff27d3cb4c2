"""The handler that the job ships, as a worker calls it."""

import json
import logging
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from blackboard import BadInput, Context, Item
from blackboard.errors import BlackboardError
from jobs.calendars import aggregate
from tests.calendars.serving import Answer, serving
from tests.calendars.support import calendar, event, params_of
from tests.cli.command_line import CommandLine, blackboard
from tests.support.page_commands import environment
from tests.support.patience import patience

__all__ = ["blackboard"]

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
        result = aggregate(
            Item("a/b", "calendars", params_of(params)), context(progress, allow=["127.0.0.1"])
        )
    assert json.loads(json.dumps(result)) == result
    assert (result["ok"], result["events"], result["from"]) == (1, 1, "2026-08-21")
    assert progress == [(1, 1)]
    assert json.loads((tmp_path / "a=2Fb.report.json").read_bytes())["fence"] == 3


def test_without_the_setting_nothing_of_this_machine_is_fetched(tmp_path: Path) -> None:
    with serving({"/one.ics": Answer(ONE)}) as site:
        params = {"feeds": [site.url("/one.ics")], "out": str(tmp_path)}
        with pytest.raises(
            BlackboardError, match=r"refused: 127\.0\.0\.1 is a loopback address \(allow"
        ):
            aggregate(Item("town", "calendars", params_of(params)), context([]))
        assert not site.asked


def test_a_list_that_is_a_file_is_read_where_files_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "one.ics").write_bytes(ONE)
    listed = tmp_path / "feeds.txt"
    listed.write_text(f"file://{tmp_path}/one.ics\n")
    item = Item("town", "calendars", params_of({"feeds_file": str(listed), "out": str(tmp_path)}))
    assert aggregate(item, context([], allow=["file"]))["events"] == 1
    with pytest.raises(BadInput, match=r"params\.feeds_file: files are not allowed"):
        aggregate(item, context([]))


def test_bad_params_and_settings_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"params\.feeds"):
        params_of({"out": str(tmp_path)})
    params = {"feeds": ["https://a.org/"], "out": str(tmp_path)}
    with pytest.raises(BadInput, match=r"jobs\.calendars\.allow"):
        aggregate(Item("town", "calendars", params_of(params)), context([], allow=[7]))
    assert list(tmp_path.iterdir()) == []


WITHOUT_HTTPX = """
import sys
from blackboard.cli import main
sys.modules["httpx2"] = None
main()
"""


@pytest.mark.of_sqlite("it is about what is installed")
@pytest.mark.parametrize("command", ["worker --until-idle", "run davis --here", "types --check"])
def test_without_its_packages_it_is_refused_before_anything_is_claimed(
    blackboard: CommandLine, command: str
) -> None:
    blackboard.write('[board]\njobs = ["calendars"]\n')
    blackboard("init")
    blackboard("add", "davis", "--type", "calendars")
    refused = subprocess.run(
        [sys.executable, "-c", WITHOUT_HTTPX, *command.split()],
        cwd=blackboard.folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(60),
    )
    assert (refused.returncode, refused.stdout) == (2, "")
    (line,) = refused.stderr.splitlines()
    assert line.endswith(
        "the type calendars needs the package httpx2 "
        "(pip install 'blackboard-scheduler[calendars]')"
    )
    assert blackboard("show", "--json").json[0]["runs"] == 0
