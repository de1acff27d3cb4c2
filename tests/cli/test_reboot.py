"""A board whose rows were all written before the host last started: their age is not known."""

import asyncio
import re
import sqlite3
from contextlib import closing

import pytest
from starlette.testclient import TestClient

import blackboard as package
from tests.cli.command_line import CommandLine, blackboard
from tests.cli.test_leases import group, held
from tests.support.web_site import LOCAL, PATHS

__all__ = ["blackboard"]
pytestmark = pytest.mark.of_sqlite

COMMANDS = (
    ["show"],
    ["show", "--state", "stale"],
    ["status"],
    ["why", "ann"],
    ["log"],
    ["next"],
    ["workers"],
    ["leases"],
    ["leases", "clicks"],
    ["leader"],
    ["check"],
    ["doctor"],
)
NO_TIME = re.compile(r"\b(nan|inf)[a-z]? |\b(nan|inf|infinity)\b", re.IGNORECASE)


@pytest.fixture(name="town")
def _town(blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """An item runs, a partition is held, an election has a leader, and the power fails."""
    blackboard("init")
    blackboard("add", "ann", "ben", "--type", "t", "--every", "1h")
    blackboard.on_board(group)
    blackboard.start("ann")
    held(blackboard, "0", owner="host:1:worker")
    with package.open_blocking() as board, board.election("report") as leader:
        leader.won()
        with closing(sqlite3.connect(blackboard.folder / blackboard.store)) as file:
            file.execute("VACUUM INTO 'left.db'")
    with closing(sqlite3.connect(blackboard.folder / "left.db")) as file, file:
        file.execute("UPDATE rows SET boot = 'kernel:of-last-week'")
    monkeypatch.setenv("BLACKBOARD_STORE", "left.db")
    return blackboard


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_says_so(town: CommandLine, command: list[str]) -> None:
    code = 1 if command[0] in {"check", "leader"} else 0
    said = town(*command, code=code)
    assert not NO_TIME.search(said.out + said.err), said.out
    assert town(*command, "--json", code=code).json is not None


def test_how_long_a_partition_is_free_is_counted_from_when_it_was_taken(town: CommandLine) -> None:
    one = town("leases", "clicks", "--json").json
    (first,) = [one for one in one["partitions"] if one["id"] == "0"]
    assert first["worker"] is None
    assert 0 < first["free"] < 60
    assert first["renewed"] is None


@pytest.mark.parametrize("path", [*PATHS, "/item?id=ann", "/leases?group=clicks"])
def test_every_page_says_so(town: CommandLine, path: str) -> None:
    async def look() -> str:
        async with package.open() as board:
            with TestClient(board.web(), base_url=LOCAL) as client:
                answer = await asyncio.to_thread(client.get, path)
                return answer.text

    text = asyncio.run(look())
    assert not NO_TIME.search(text), text
