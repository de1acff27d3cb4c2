"""What may be written after `--store`."""

import asyncio
import re
from pathlib import Path

import pytest

from blackboard.errors import BadInput, BlackboardError, MissingStore, StoreProblem
from blackboard.stores import open_table, resolve_path
from blackboard.table import Insert, Table, Unavailable
from blackboard.tables.memory import MemoryTable
from blackboard.tables.sqlite import SqliteTable
from tests.support.boards import TurningClock
from tests.support.clocks import ManualClock
from tests.support.stores import rows_of


def opened(url: str, *, create: bool = False) -> Table:
    """The table, used and closed."""

    async def story() -> Table:
        table = await open_table(url, TurningClock(), create=create)
        await table.commit("p", [Insert("a", {"n": 1})])
        assert len(await rows_of(table, "p")) == 1
        await table.close()
        return table

    return asyncio.run(story())


ADDRESSES = {
    "b.db": "b.db",
    "./b.db": "b.db",
    "sqlite:b.db": "b.db",
    "SQLite:b.db": "b.db",
    "sqlite:b.db?synchronous=full": "b.db",
    "sqlite:b.db?synchronous=NORMAL": "b.db",
    "sqlite:b.db?trust_filesystem=1": "b.db",
    "sqlite:b.db?trust_filesystem=0&synchronous=full": "b.db",
    "sqlite:a:b.db": "a:b.db",
    "b.db?really": "b.db?really",
    "sqlite:b.db?x=1?": "b.db?x=1",
}


@pytest.mark.parametrize("url", ADDRESSES)
def test_a_path_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(opened(url, create=True), SqliteTable)
    assert [file.name for file in tmp_path.iterdir()] == [ADDRESSES[url]]


@pytest.mark.parametrize("url", ["b.db", "sqlite:b.db", "sqlite:b.db?synchronous=full"])
def test_options_belong_to_the_file_and_not_to_its_folder(tmp_path: Path, url: str) -> None:
    folder = tmp_path / "a?synchronous=off"
    folder.mkdir()
    opened(resolve_path(url, folder), create=True)
    assert [file.name for file in folder.iterdir()] == ["b.db"]


def test_the_home_folder_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    opened("sqlite:~/b.db", create=True)
    assert [file.name for file in tmp_path.iterdir()] == ["b.db"]


def test_synchronous_full_is_heard(tmp_path: Path) -> None:
    async def story(option: str) -> object:
        table = await open_table(f"sqlite:{tmp_path}/b.db{option}", ManualClock(), create=True)
        assert isinstance(table, SqliteTable)
        file = table._file
        found = await table._thread.call(
            lambda: file._connection.execute("PRAGMA synchronous").fetchone()
        )
        await table.close()
        return found

    assert [asyncio.run(story(option)) for option in ("", "?synchronous=full")] == [(1,), (2,)]


def test_memory_is_empty_each_time() -> None:
    assert isinstance(opened("memory:"), MemoryTable)
    assert isinstance(opened("memory:"), MemoryTable)


REFUSED: dict[str, tuple[type[BlackboardError], str]] = {
    "missing.db": (MissingStore, "no board at .*missing.db.*blackboard init"),
    "sqlite:missing.db": (MissingStore, "no board at .*missing.db.*blackboard init"),
    "sqlite:missing.db?synchronous=full": (MissingStore, "no board at .*missing.db .*init"),
    "none/b.db": (StoreProblem, "no folder .*none"),
    "azurite://127.0.0.1:10002/a/b": (BadInput, "azurite://HOST:PORT/TABLE"),
    "http://ann.table.core.windows.net/town": (BadInput, "plain HTTP.*https://"),
    "https://ann.table.core.windows.net": (BadInput, "one table.*/TABLE"),
    "https://ann.table.cosmos.azure.com/town": (StoreProblem, "not sorted"),
    "postgres://ann@host/town": (BadInput, "'postgres'.*sqlite:PATH"),
    "~nobody-of-that-name/b.db": (BadInput, "store: ~nobody.*leads nowhere.*the whole path"),
    "": (BadInput, "no path"),
    "sqlite:": (BadInput, "no path"),
    "no/x\udcff.db": (BadInput, r"'no/x\\udcff.db' is not UTF-8 text .rename what"),
    "sqlite:?synchronous=full": (BadInput, "no path"),
    "sqlite:b.db?trust_filesystem=yes": (BadInput, "trust_filesystem=yes.*trust_filesystem=1"),
    "sqlite:b.db?synchronous=off": (BadInput, "synchronous=off.*synchronous=full"),
    "b.db?sync=full": (BadInput, "as only a URL has .write sqlite:b.db.sync=full, or .*full. for"),
    "b.db?synchronous=full": (BadInput, "as only a URL has .write sqlite:b.db.synchronous=full"),
    "sqlite:b.db?journal=wal": (BadInput, "journal=wal"),
    "sqlite:b.db?full": (BadInput, "full="),
}


@pytest.mark.parametrize("url", REFUSED)
def test_what_is_no_store_is_refused_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    kind, words = REFUSED[url]
    with pytest.raises(kind) as caught:
        opened(url)
    assert caught.type is kind
    assert re.search(words, str(caught.value)), caught.value
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_not_there_is_made_only_when_that_is_wanted(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def rows() -> int:
        table = await open_table(store_url, ManualClock())
        found = await rows_of(table, "p")
        await table.close()
        return len(found)

    monkeypatch.delenv("BLACKBOARD_CONNECTION_STRING", raising=False)
    for _ in range(2):
        with pytest.raises(MissingStore, match="blackboard init"):
            asyncio.run(rows())
    opened(store_url, create=True)
    assert asyncio.run(rows()) == 1


@pytest.mark.parametrize("url", ["azurite://127.0.0.1:1/town", "https://127.0.0.1:1/ann/town"])
def test_an_azure_table_is_asked_where_its_address_says(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("BLACKBOARD_CONNECTION_STRING", "")
    if url.startswith("https"):
        key = "AccountName=ann;AccountKey=YW5u"
        monkeypatch.setenv("BLACKBOARD_CONNECTION_STRING", key)
    with pytest.raises(Unavailable, match=r"cannot connect to 127\.0\.0\.1:1"):
        opened(url)


PLACED = {
    "b.db": "/town/b.db",
    "../b.db": "/town/../b.db",
    "sqlite:b.db": "sqlite:/town/b.db",
    "SQLite:b.db": "SQLite:/town/b.db",
    "sqlite:a:b.db": "sqlite:/town/a:b.db",
    "sqlite:b.db?synchronous=full": "sqlite:/town/b.db?synchronous=full",
    **{
        same: same
        for same in (
            "/var/b.db",
            "sqlite:/var/b.db",
            "~/b.db",
            "sqlite:~/b.db",
            "",
            "sqlite:",
            "sqlite:?synchronous=full",
            "memory:",
            "azurite:",
            "azurite://127.0.0.1:10002/town",
            "https://ann.table.core.windows.net/town",
            "postgres://ann@host/town",
        )
    },
}


@pytest.mark.parametrize("url", PLACED)
def test_a_relative_path_starts_from_a_folder_and_nothing_else_is_changed(url: str) -> None:
    assert resolve_path(url, Path("/town")) == PLACED[url]
