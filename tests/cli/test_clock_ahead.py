"""What the command line says of a board that a wrong clock has set back."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from blackboard.cli import called
from blackboard.model import Token
from blackboard.protocol.additions import New, add
from blackboard.protocol.claims import claim
from blackboard.protocol.releases import release
from blackboard.spec import Spec
from blackboard.tables.sqlite import SqliteTable
from blackboard.tables.sqlite_open import Opening
from tests.support.boards import finished, make_board
from tests.support.clocks import ManualClock

YEARS = timedelta(days=3653)
SAID: dict[str, dict[str, Any]] = {"davis": {"every": "8h"}, "toronto": {"cron": "0 3 * * *"}}


async def one_walk(path: Path, *, at: datetime) -> None:
    """All is due, runs, and is planned from then on."""
    clock = ManualClock(at)
    table = await SqliteTable.open(path, clock, Opening(create=True))
    board = await make_board(table, clock, name="blackboard")
    for name, said in SAID.items():
        spec = Spec(**said)
        await add(board, New(id=name, type="feed", spec=spec, first=clock.now()))
    due = board.walk(0, until=clock.now())
    tokens = [found async for found in due if isinstance(found, Token)]
    answer = await claim(board, tokens, owner="me")
    await release(board, [finished(made) for made in answer.claims])
    await table.close()


def test_a_board_that_was_set_back_is_told_and_put_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "blackboard.db"
    asyncio.run(one_walk(path, at=datetime.now(UTC) + YEARS))

    def said(*args: str) -> tuple[int, list[str]]:
        code = called(["--store", str(path), *args])
        return code, capsys.readouterr().out.splitlines()

    code, lines = said("check")
    assert (code, [line.split()[:2] for line in lines]) == (
        1,
        [["clock", "davis"], ["clock", "toronto"]],
    )
    assert "later than its schedule (every 8h) explains" in lines[0]
    code, lines = said("doctor")
    assert (code, [line.split()[:2] for line in lines[:2]]) == (
        1,
        [["D11", "davis"], ["D11", "toronto"]],
    )
    _, lines = said("log", "davis")
    assert re.match(r"365[23]d.* ahead \(clock\)  davis", lines[1]), lines
    code, lines = said("doctor", "--repair")
    assert code == 0
    assert [line.endswith("[repaired]") for line in lines[:2]] == [True, True]
    code, lines = said("check")
    assert {line.split()[0] for line in lines} == {"unserved"}, (
        "they are due, and no worker is there"
    )
    code, lines = said("doctor")
    assert code == 0
    assert lines[0].startswith("clean")
