"""How a test calls the command line: in this process, in a folder of its own."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, TypeVar

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import ResourceNotFoundError
from azure.data.tables import TableClient

from blackboard.cli import called
from blackboard.cli.options import Chosen
from blackboard.cli.session import Session
from blackboard.clock import SystemClock
from blackboard.location import DEFAULT_STORE
from blackboard.model import Ended, Item, Outcome, Token, replace
from blackboard.protocol.batches import change_ops
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim, claim
from blackboard.protocol.releases import FinishedRun, release
from blackboard.tables.azure_address import azure_address
from blackboard.tables.azure_clock import ServiceClock
from blackboard.tables.azure_credentials import EMULATOR_KEY
from tests.support.patience import patience

ROOT = Path(__file__).resolve().parents[2]
Answer = TypeVar("Answer")


def piped(text: str | bytes) -> TextIOWrapper:
    """A standard input that has this text."""
    return TextIOWrapper(BytesIO(text if isinstance(text, bytes) else text.encode()))


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class CommandLine:
    """`blackboard ARGS` in `folder`, on the store that is usual there."""

    folder: Path
    store: str
    """Its address, as messages show it."""
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *args: str, code: int = 0) -> Said:
        self.capsys.readouterr()
        found = called(list(args))
        out, err = self.capsys.readouterr()
        assert found == code, f"exit code {found}\n{out}{err}"
        return Said(found, out, err)

    def refused(self, *args: str) -> str:
        """The one line with which bad input is refused; nothing was changed by it."""
        before = self.rows()
        said = self(*args, code=2)
        assert said.out == ""
        assert said.err.startswith("blackboard: ")
        assert said.err.count("\n") == 1
        assert self.rows() == before
        return said.err.removeprefix("blackboard: ").rstrip("\n")

    def elsewhere(self, name: str) -> str:
        """The address of another store that nobody has made yet."""
        return f"{self.store.removesuffix('.db')}{name}{'.db' * self.store.endswith('.db')}"

    def write(self, text: str, name: str = "blackboard.toml") -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def rows(self) -> list[str]:
        """All that the store holds, as text; nothing when there is no store."""
        if self.store.startswith("azurite:"):
            return _entities(self.store)
        file = self.folder / self.store
        if not file.exists():
            return []
        with closing(sqlite3.connect(file)) as connection:
            return list(connection.iterdump())

    def on_board(self, work: Callable[[BoardTable], Coroutine[Any, Any, Answer]]) -> Answer:
        """What other processes do to the board meanwhile."""

        async def opened() -> Answer:
            async with Session.start(Chosen()).board() as board:
                return await work(board)

        return asyncio.run(opened())

    def item(self, item_id: str) -> Item:
        item = self.on_board(lambda board: board.item(item_id))
        assert item is not None
        return item

    def ids(self) -> list[str]:
        async def read(board: BoardTable) -> list[str]:
            return [item.id async for item in board.items()]

        return sorted(self.on_board(read))

    def start(self, item_id: str, *, owner: str = "host:1:worker") -> Claim:
        """A worker claims the item."""

        async def take(board: BoardTable) -> Claim:
            until = await board.table.now() + timedelta(days=3660)
            tokens = [
                found
                for number in range(board.shards)
                async for found in board.walk(number, until=until)
                if isinstance(found, Token) and found.id == item_id
            ]
            return (await claim(board, tokens, owner=owner)).claims[0]

        return self.on_board(take)

    def finish(self, held: Claim, outcome: Outcome = Outcome.OK, **ended: Any) -> None:
        """The worker writes the outcome."""

        async def let_go(board: BoardTable) -> None:
            done = Ended(outcome=outcome, **ended)
            await release(board, [FinishedRun(claim=held, ended=done)])

        self.on_board(let_go)

    def set_back(self, item_id: str, by: timedelta) -> None:
        """Let an item have been ready for so long."""

        async def moved(board: BoardTable) -> None:
            item = await board.item(item_id)
            assert item is not None
            slot, ready, planned = (one - by for one in (item.slot, item.ready, item.planned))
            ops = change_ops(item, replace(item, slot=slot, ready=ready, planned=planned))
            await board.table.commit(board.partition(item_id), ops)

        self.on_board(moved)


def _entities(store: str) -> list[str]:
    address = azure_address(store)
    key = AzureNamedKeyCredential(address.account, EMULATOR_KEY)
    with TableClient(address.endpoint, address.table, credential=key) as table:
        try:
            return [f"{entity.metadata['etag']} {entity}" for entity in table.list_entities()]
        except ResourceNotFoundError:
            return []


@pytest.fixture
def blackboard(
    store_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> CommandLine:
    """The command, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("blackboard.handlers.manifest.cache_folder", lambda: tmp_path / "cache")
    for name in ("BLACKBOARD_STORE", "BLACKBOARD_CONNECTION_STRING", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    if store_url.startswith("azurite:"):
        # So that moments of several commands compare to the millisecond, as those of one do.
        known = ServiceClock(SystemClock())
        monkeypatch.setattr("blackboard.tables.azure_transport.ServiceClock", lambda _: known)
        monkeypatch.setenv("BLACKBOARD_STORE", store_url)
        return CommandLine(tmp_path, store_url, capsys)
    return CommandLine(tmp_path, DEFAULT_STORE, capsys)


def processed(*args: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """`blackboard ARGS` as a process of its own."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "blackboard", *args],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(120),
    )
