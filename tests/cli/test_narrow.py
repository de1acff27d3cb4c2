"""Every command that reads is legible in 80 columns, and in 60, whatever the board holds: no line
is wider than the terminal, wide characters have two cells, and colours can be declined.
"""

import json
import re
from collections.abc import Sequence
from datetime import timedelta

import pytest

from blackboard.display.layout import measure
from blackboard.model import Member, Outcome, replace
from blackboard.protocol.additions import ensure
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import group_key, item_key, meta_partition
from blackboard.protocol.members import announce
from blackboard.protocol.status import count, write_statistics
from blackboard.rules.shares import names_of
from blackboard.table import ANY, Insert, Merge, Value
from tests.cli.command_line import CommandLine, blackboard
from tests.cli.test_leader import candidate
from tests.support.terminals import terminal

__all__ = ["blackboard"]

pytestmark = pytest.mark.not_on_azurite("what is shown does not depend on the store")

LONG = "westlafcals-" * 9 + "end"
BAD = "beaverton-" * 11 + "end"
"""Its row is damaged, and its last run failed."""
WIDE = "東京都の気象台" * 4
TYPE = "calendars-of-many-small-towns-with-a-long-name"
ERROR = "ValueError: the feed https://example.org/" + "x" * 150 + " is no calendar\n  " + "位" * 90
COLOUR = re.compile(r"\x1b\[[\d;]*m")
JOBS = f"""
from dataclasses import dataclass
from blackboard import handler

@dataclass
class Params:
    feeds_of_the_town_and_its_neighbours: list[str]
    days_that_are_looked_ahead: int = 30
    folder_of_what_is_written: str = "out"

@handler("{TYPE}", every="8h", timeout="10m", retries=2, stale_after="1m", params=Params)
async def calendars(item, ctx): ...
"""

READING = (
    *("show", "show --absolute", "show --state failed", "show --state done"),
    *("status", "log", "log --full", "log --output", "log --absolute", "next"),
    *("next town", "next --cron @daily -n 2", f"why {LONG} {WIDE} town", "workers"),
    *("workers --absolute", "leases", f"leases {'clicks' * 4}", "leader", "leader --absolute"),
    *("check", "doctor", "cost", "types", "report town"),
    "simulate --items 20 --hours 0.2 --workers 2 --faults all",
)
"""Lines of commands that print for people. `export`, `show --plain` and `status --line` are read by
programs."""
ON_A_TERMINAL = ("show", "status", "log", "log --full", f"why {LONG}", "workers", "check", "types")


@pytest.fixture(name="town")
def _town(blackboard: CommandLine) -> CommandLine:
    """A board with long and wide names of everything."""
    town = blackboard
    town.write(JOBS, "jobs.py")
    town.write('[board]\njobs = ["jobs.py"]\n')
    town("init")
    town(
        "add",
        LONG,
        WIDE,
        BAD,
        "town",
        "--type",
        TYPE,
        "--every",
        "8h",
        "--set",
        'feeds_of_the_town_and_its_neighbours=["a"]',
    )
    town("add", "yearly", "--type", "shell", "--rrule", "FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU;BYHOUR=4")
    town("add", "nightly", "--type", "backup", "--cron", "30 6 1-7,15-21 1-6,9-12 mon-fri")
    town("edit", "town", "--description", "the calendars of a town " * 8, "--tags", "a" * 50)
    report = town.write(json.dumps(REPORT), "town.report.json")
    town.finish(town.start("town"), result={"report": str(report)}, output="printed " * 40)
    for one in (LONG, BAD):
        town.finish(town.start(one), Outcome.FAILED, error=ERROR)
    town.finish(town.start(WIDE), warnings=("Œuvre " * 40, WIDE * 3))
    town("pause", LONG, "--reason", "the feeds are being moved to another host " * 4)
    town("run", WIDE)
    town.start(WIDE, owner="a-host-with-a-very-long-name.example.org:1234567:abcdefgh")
    town.on_board(_peopled)
    with candidate("a-report-that-is-written-each-night-of-the-year"):
        pass
    return town


REPORT = {
    "id": "town",
    "summary": {f"a number with a long name {n}": n for n in range(9)},
    "feeds": [{"name": WIDE * 2, "events": 7, "level": "bad"}, {"name": LONG, "events": 0}],
    "table": {
        "rows": "feeds",
        "columns": [{"title": "feed", "key": "name"}, {"title": "events", "key": "events"}],
    },
}


async def _peopled(board: BoardTable) -> None:
    """Workers, a group of partitions, and statistics; and a row is damaged."""
    now = await board.table.now()
    damage = [Merge(item_key(BAD), {"ready": now + timedelta(hours=3)}, ANY)]
    await board.table.commit(board.partition(BAD), damage)
    names = ("a-host-with-a-very-long-name.example.org:1234567:abcdefgh", "fox:8:def")
    for name in names:
        member = Member(
            owner=name, started=now, seen=now, slots=8, running=0, release="0.1.0", types=TYPE
        )
        await announce(board, member)
    group = "clicks" * 4
    about: dict[str, Value] = {"version": 1, "kind": "pump", "partitions": 3, "lease": 30.0}
    await board.table.commit(meta_partition(board.name), [Insert(group_key(group), about)])
    found = board.group(group)
    await BoardTable.create(
        board.table,
        name=found.name,
        shards=1,
        clock=found.clock,
        chance=found.chance,
        resolve=found.resolve,
    )
    await ensure(found, names_of(3), group)
    counted = await count(board, by=names[0], term=4)
    assert await write_statistics(board, replace(counted, items=1_234_567))


def too_wide(text: str, columns: int) -> list[str]:
    """Lines that a terminal of so many columns would break."""
    return [
        line for line in text.expandtabs().splitlines() if measure(COLOUR.sub("", line)) > columns
    ]


@pytest.mark.parametrize("columns", [80, 60])
def test_no_line_is_wider_than_the_terminal(
    town: CommandLine, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for line in READING:
        said = town(*line.split(), code=1 if line in {"check", "doctor"} else 0)
        assert said.out, line
        assert too_wide(said.out, columns) == [], line


@pytest.mark.parametrize(("no_color", "lines"), [("", ON_A_TERMINAL), ("1", ON_A_TERMINAL[:2])])
def test_colours_take_no_room_and_can_be_declined(
    town: CommandLine, no_color: str, lines: Sequence[str]
) -> None:
    found = []
    for line in lines:
        with terminal(
            *line.split(), folder=town.folder, size=(90, 80), environment={"NO_COLOR": no_color}
        ) as screen:
            screen.end()
        assert too_wide(screen.text, 80) == [], line
        found += ["\x1b" in screen.text]
    assert any(found) is not bool(no_color)


def test_a_watched_board_has_no_colours_where_they_are_declined(town: CommandLine) -> None:
    for environment in ({"NO_COLOR": "1"}, {}):
        with terminal(
            "show", "--watch", folder=town.folder, size=(10, 40), environment=environment
        ) as screen:
            seen = screen.wait_to_see("> beaverton", "2 failed", "q ends")
            screen.press("j", "j", "j", "\r")
            seen += "\n" + screen.wait_to_see("paused.", "Esc back")
            screen.press("q", "q")
            assert screen.end() == 0
        assert too_wide(seen, 40) == []
        assert bool(COLOUR.search(screen.all.replace("\x1b[0m\x1b[?7h", ""))) is not bool(
            environment
        )
