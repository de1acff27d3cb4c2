"""Of 10,000 rows that came to harm each is refused, left alone or repaired: no process crashes, and
all other items keep running.

The long form of the proof makes it 100,000.
"""

import asyncio
import json
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from httpx2 import ASGITransport, AsyncClient

import blackboard
from blackboard.cli import called
from blackboard.display.item_queries import SORTS
from blackboard.errors import BlackboardError
from blackboard.protocol.board_table import BoardTable
from blackboard.table import Table
from blackboard.tables.memory import MemoryTable, _Part, _Version
from blackboard.web.actions import VERBS
from tests.proof.damage.mutated_boards import DEAD, Harmed, Write, harmed, written
from tests.proof.damage.mutations import Kept, Mutation, Mutator
from tests.proof.form import LONG
from tests.support.boards import settings_of
from tests.support.clocks import ManualClock, SeededChance
from tests.support.stores import STORES
from tests.support.web_site import PATHS

ROWS = 100
"""On one board."""
BOARDS = {"memory": 100, "sqlite": 10, "azurite": 6}
PARTS = 2
FAMILIES = {"item", "lock", "next", "run", "worker"}
COMMANDS = (
    "show",
    "show --json",
    "status --json",
    "log --full",
    "log --output --json",
    "next --json",
    "export",
    "export --json",
    "check",
    "check --json",
    "cost",
    "workers --json",
    "leases --json",
    "leader --json",
    "doctor",
    "doctor --json",
    "doctor --repair",
)
ABOUT_ONE = (
    "show",
    "why",
    "report",
    "log",
    "next",
    "edit --every 2h",
    "pause",
    "resume",
    "run",
    "cancel",
    "unlock",
    "rm",
)

OF_ONE = ("item", "run", "runs", "timeline", "report")
OF_ALL = ("board", "items", "runs", "workers", "leases", "leaders", "alarms", "actions")
"""Pages of one item, and what the JSON interface answers of all."""


async def into_memory(table: Table, mutation: Mutation) -> None:
    """Also what no store takes from a program."""
    assert isinstance(table, MemoryTable)
    contents, before, after = table._contents, mutation.before, mutation.after
    if not mutation.stays:
        contents.parts[before.partition].drop(before.key)
    contents.etag += 1
    kept = _Version(str(contents.etag), table._clock.monotonic(), dict(after.data))
    contents.parts.setdefault(after.partition, _Part()).put(after.key, kept)


def harmed_board(store: str, seed: int, folder: Path, request: pytest.FixtureRequest) -> Harmed:
    folder.mkdir()
    opened = STORES[store](lambda: folder, lambda: request.getfixturevalue("azurite"))
    in_memory = store == "memory"
    write: Write = into_memory if in_memory else written
    return asyncio.run(harmed(opened, seed, rows=ROWS, write=write, wild=in_memory))


@pytest.mark.parametrize("part", range(PARTS))
def test_rows_that_came_to_harm_end_nobody_and_hold_up_nobody(
    store: str, part: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    families: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    for seed in range(part, BOARDS[store] * (10 if LONG else 1), PARTS):
        made = harmed_board(store, seed, tmp_path / str(seed), request)
        families.update(mutation.before.family for mutation in made.done)
        outcomes += made.outcomes
    assert families.keys() == FAMILIES
    assert {"goes on", "its item cannot be read", "it waits, and is not taken"} <= outcomes.keys()
    assert any(name.startswith("repaired") for name in outcomes)


@pytest.mark.parametrize("seed", [1001, 1002])
def test_no_command_crashes_on_rows_that_came_to_harm(
    seed: int,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each does what it is told to, or says in one line why not."""
    made = harmed_board("sqlite", seed, tmp_path / "board", request)
    monkeypatch.chdir(tmp_path)
    ids = sorted({one.before.id for one in made.done if one.before.family != "worker"})
    commands = [command.split() for command in COMMANDS]
    commands += [[*command.split(), name] for name in ids[::3] for command in ABOUT_ONE]
    for command in commands:
        board = ("--store", str(tmp_path / "board" / "blackboard.db"), "--board", "town")
        code = called([*board, *command])
        said = capsys.readouterr()
        assert code in {0, 1, 2}, (command, said)
        assert code != 2 or said.err.startswith("blackboard: "), (command, said)
        if "--json" in command and code != 2:
            json.loads(said.out)


@pytest.mark.parametrize("seed", [1003, 1004])
def test_no_page_fails_on_rows_that_came_to_harm(
    seed: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Each is answered, and so is each request to the JSON interface, or says why not."""
    made = harmed_board("sqlite", seed, tmp_path / "board", request)
    ids = sorted({one.before.id for one in made.done if one.before.family != "worker"})
    paths = [*PATHS, "/metrics", "/timeline?by=worker&hours=744"]
    paths += [f"/?sort={key}" for key in SORTS]
    paths += [f"/api/v1/{name}" for name in OF_ALL]
    paths += [f"/{name}?fence=1&id={quote(one)}" for one in ids[::3] for name in OF_ONE]
    paths += [
        f"/api/v1/{name}id={quote(one)}"
        for one in ids[::3]
        for name in ("item?", "why?", "next?", "runs?", "run?fence=1&")
    ]

    async def asks() -> Counter[int]:
        statuses: Counter[int] = Counter()
        async with blackboard.open(tmp_path / "board" / "blackboard.db", name="town") as board:
            transport = ASGITransport(app=board.web(hosts=["localhost"], operator=True))
            async with AsyncClient(transport=transport, base_url="http://localhost") as client:
                for path in paths:
                    answer = await client.get(path)
                    assert answer.status_code in {200, 400, 404, 409}, (path, answer.text)
                    statuses[answer.status_code] += 1
                for verb, one in zip(cycle(VERBS), ids, strict=False):
                    body = {"id": one} | ({"new_id": f"{one}-new"} if verb == "rename" else {})
                    answer = await client.post(f"/api/v1/{verb}", json=body)
                    assert answer.status_code in {200, 400, 404, 409}, (verb, one, answer.text)
                    statuses[answer.status_code] += 1
        return statuses

    assert asyncio.run(asks()).keys() >= {200, 409}


def test_a_board_whose_own_row_came_to_harm_opens_or_is_refused() -> None:
    async def told() -> Counter[str]:
        outcomes: Counter[str] = Counter()
        mutator = Mutator(1, partitions=("town-meta", "town"), owners=(DEAD,), wild=True)
        parts: dict[str, Any] = {
            "name": "town",
            "clock": ManualClock(),
            "chance": SeededChance(),
            "resolve": settings_of,
        }
        for _ in range(300):
            table = MemoryTable(ManualClock())
            await BoardTable.create(table, shards=1, **parts)
            (row,) = [row async for row in table.scan("town-meta")]
            kept = Kept(partition="town-meta", key=row.key, data=row.data)
            await into_memory(table, mutator.mutated(kept))
            try:
                await BoardTable.open(table, **parts)
            except BlackboardError:
                outcomes["refused"] += 1
            else:
                outcomes["opened"] += 1
        return outcomes

    assert asyncio.run(told()).keys() == {"refused", "opened"}
