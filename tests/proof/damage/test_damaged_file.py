"""A board's file that is cut short, or has one bit flipped, anywhere: every command and the worker
work, or refuse in one line. Where an item cannot be read, before a worker was there or after it,
`doctor` says that the file is damaged.

A log that is damaged ends, for SQLite, before the damage: the board is then as it was after one of
its batches, and whole.

The long form of the proof makes it 7,000 kinds of damage.
"""

import asyncio
import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from blackboard.assembly import new_worker
from blackboard.board_worker import BoardWorker
from blackboard.cli import called
from blackboard.model import Token
from blackboard.protocol.additions import New, add
from blackboard.protocol.claims import claim
from blackboard.protocol.releases import release
from blackboard.spec import Spec
from blackboard.tables.sqlite import SqliteTable
from blackboard.tables.sqlite_ages import boot_id
from blackboard.tables.sqlite_open import Opening
from tests.proof.chaos.disk import STEPS, Picture, begin, picture
from tests.proof.form import LONG
from tests.support.boards import TurningClock, disagreements, finished, make_board
from tests.support.patience import patience
from tests.support.stores import Run

PER_REGION = 400 if LONG else 6
PAGE = 4096
PATIENCE = 0.3
"""Seconds that a worker takes here at the most."""
ITEMS = 60
HANDLER = """
from blackboard import handler
from tests.proof.form import LONG

@handler("feed", every="1h")
async def feed(item, ctx):
    return "x" * 300
"""
KINDS = {0x02: "interior", 0x05: "interior", 0x0A: "leaf", 0x0D: "counter"}
"""By the first byte of a page; whatever has another is an overflow page."""


@dataclass(frozen=True)
class Harm:
    """One bit flipped at `place`; or, without a bit, the file cut there."""

    where: str
    place: int
    bit: int | None = None

    def do(self, path: Path) -> None:
        if self.bit is None:
            os.truncate(path, self.place)
            return
        raw = bytearray(path.read_bytes())
        raw[self.place] ^= 1 << self.bit
        path.write_bytes(raw)


@pytest.fixture(scope="module", autouse=True)
def own_faulthandler() -> Iterator[None]:
    """Pytest's stays as it is, whatever a worker in this process wants."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("faulthandler.enable", lambda: None)
        yield


@pytest.fixture(autouse=True)
def asked_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that cannot write back what it has run waits for a person: here it is asked, twice,
    not to wait.
    """

    def stopping(*parts: Any, **named: Any) -> BoardWorker:
        worker = new_worker(*parts, **named)
        for after in (PATIENCE, PATIENCE + 0.1):
            asyncio.get_running_loop().call_later(after, worker.stop)
        return worker

    monkeypatch.setattr("blackboard.assembly.new_worker", stopping)
    monkeypatch.setattr("blackboard.worker.worker.LAST_RELEASES", 0.1)


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A board with a history, the same to the byte each time, whose file has pages of every kind;
    beside it the jobs.
    """
    folder = tmp_path_factory.mktemp("board")
    (folder / "jobs.py").write_text(HANDLER)
    path = folder / "blackboard.db"
    asyncio.run(fill(path))
    assert not path.with_name("blackboard.db-wal").exists()
    return path


async def fill(path: Path) -> None:
    clock = TurningClock(datetime(2020, 1, 1, tzinfo=UTC))
    table = await SqliteTable.open(path, clock, Opening(create=True, boot="kernel:an older one"))
    board = await make_board(table, clock, name="blackboard")
    for number in range(ITEMS):
        text = "x" * (9_000 if number % 10 == 0 else 200)
        spec = Spec(every="1h", params={"text": text})
        await add(board, New(id=f"item-{number:02}", type="feed", spec=spec))
    due = board.walk(0, until=await table.now())
    tokens = [found async for found in due if isinstance(found, Token)]
    answer = await claim(board, tokens, owner="me")
    await release(board, [finished(made, result="x" * 300) for made in answer.claims[:40]])
    await table.close()


def harms(raw: bytes) -> Iterator[Harm]:
    """Every byte of the header; of each kind of page its head and what it holds; cuts."""
    chance = random.Random(1)
    pages: dict[str, list[int]] = {"schema": [0]}
    for start in range(PAGE, len(raw), PAGE):
        pages.setdefault(KINDS.get(raw[start], "overflow"), []).append(start)
    assert pages.keys() == {"schema", *KINDS.values(), "overflow"}
    for place in range(0, 100, 1 if LONG else 6):
        yield Harm("header", place, chance.randrange(8))
    for kind, starts in pages.items():
        first = 100 if kind == "schema" else 0
        for low, high in ((first, first + 12), (first + 12, first + 60), (first, PAGE)):
            for _ in range(PER_REGION):
                place = chance.choice(starts) + chance.randrange(low, high)
                yield Harm(kind, place, chance.randrange(8))
    for size in (0, 1, 99, 100, 512, PAGE - 1, PAGE, PAGE + 1, len(raw) - PAGE, len(raw) - 1):
        yield Harm("cut", size)
    for _ in range(PER_REGION):
        yield Harm("cut", chance.randrange(len(raw)))


@dataclass(frozen=True)
class CommandLine:
    """Calls commands on one file."""

    path: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *args: str) -> tuple[int, str]:
        """The exit code, and what was said on stdout. What is refused is refused in one line."""
        code = called([args[0], "--store", str(self.path), *args[1:]])
        said = self.capsys.readouterr()
        assert code in {0, 1, 2}, said
        if code == 2:
            assert said.err.splitlines()[-1].startswith("blackboard: "), said
            assert "Traceback" not in said.err
        return code, said.out

    def said_of_it(self) -> str:
        """What `show` and `doctor` say of the file."""
        refused, out = self("show", "--json")
        doctor, _ = self("doctor")
        if refused:
            return "refused"
        if doctor:
            return "told"
        return "works" if len(msgspec.json.decode(out)) == ITEMS else "lost"


def test_cr04_a_file_cut_short_or_with_a_bit_flipped_works_or_is_refused(
    board: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes: Counter[str] = Counter()
    for number, harm in enumerate(harms(board.read_bytes())):
        path = tmp_path / f"{number}.db"
        shutil.copy(board, path)
        harm.do(path)
        call = CommandLine(path, capsys)
        before = call.said_of_it()
        call("worker", "--jobs", str(board.with_name("jobs.py")), "--once")
        after = call.said_of_it()
        assert not {before, after} & {"lost"}, harm
        outcomes[before] += 1
        path.unlink()
    assert outcomes.keys() == {"refused", "works", "told"}, outcomes


@pytest.mark.parametrize(
    "harm",
    [
        "data = x'ff'",
        "data = '{'",
        "data = '[]'",
        "data = '{\"slot\":[1]}'",
        "data = '{\"slot\":[]}'",
        "touched = 'soon', boot = '<ours>'",
    ],
)
def test_cr04_a_row_that_holds_other_kinds_of_values_is_refused_or_read(
    board: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], harm: str
) -> None:
    """As a flipped bit can make them, or a hand."""
    path = tmp_path / "blackboard.db"
    shutil.copy(board, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        told = harm.replace("<ours>", boot_id())
        connection.execute(f"UPDATE rows SET {told} WHERE key LIKE 'lock:%'")
    assert CommandLine(path, capsys).said_of_it() in {"refused", "told", "works"}


@pytest.mark.parametrize("data", ["'garbage'", "x'ff'", "'[]'", "'{\"item\":[1]}'"])
@pytest.mark.parametrize("key", ["item:item-55", "next:%:item-05", "lock:item-45", "run:item-05:%"])
def test_cr04_a_row_that_is_no_text_stops_no_other_item(
    board: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    key: str,
    data: str,
) -> None:
    monkeypatch.setattr("tests.proof.damage.test_damaged_file.PATIENCE", patience(30))
    path = tmp_path / "blackboard.db"
    shutil.copy(board, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        changed = connection.execute(f"UPDATE rows SET data = {data} WHERE key LIKE '{key}'")
        assert changed.rowcount == 1
    call, hit = CommandLine(path, capsys), key.split(":")[-1 if key.startswith("next") else 1]
    call("worker", "--jobs", str(board.with_name("jobs.py")), "--until-idle")
    _, shown = call("show", "--json")
    found = {one["id"]: one["outcome"] for one in msgspec.json.decode(shown)}
    assert {name for name, outcome in found.items() if outcome != "ok"} <= {hit}
    assert len(found) == ITEMS - key.startswith("item")
    call("doctor", "--repair")
    call("worker", "--jobs", str(board.with_name("jobs.py")), "--until-idle")
    _, shown = call("show", hit, "--json") if not key.startswith("item") else (0, "[]")
    assert all(one["outcome"] == "ok" for one in msgspec.json.decode(shown))


async def with_log(path: Path) -> list[Picture]:
    """A board all of whose batches are in its log yet: it is copied while it is open. The pictures
    of it after each step.
    """
    clock = TurningClock()
    table = await SqliteTable.open(path.with_name("open.db"), clock, Opening(create=True))
    told = await begin(table, clock)
    pictures = [await picture(table)]
    for step in STEPS:
        await step(told)
        pictures.append(await picture(table))
    for suffix in ("", "-wal"):
        shutil.copy(path.with_name(f"open.db{suffix}"), path.with_name(f"{path.name}{suffix}"))
    await table.close()
    return [[], *pictures]


async def looked_at(path: Path) -> tuple[Picture, list[str]]:
    """What the board says, and what is wrong with it."""
    clock = TurningClock()
    table = await SqliteTable.open(path, clock)
    try:
        board = (await begin(table, clock)).board
        return await picture(table), await table.integrity() + await disagreements(board)
    finally:
        await table.close()


def test_cr04_a_log_cut_short_or_with_a_bit_flipped_ends_after_one_of_its_batches(
    tmp_path: Path, run: Run
) -> None:
    whole = tmp_path / "whole.db"
    pictures = run(with_log(whole))
    log = whole.with_name("whole.db-wal")
    size, chance = log.stat().st_size, random.Random(2)
    harms = [Harm("header", place, chance.randrange(8)) for place in range(32)]
    harms += [
        Harm("frames", chance.randrange(32, size), chance.randrange(8))
        for _ in range(10 * PER_REGION)
    ]
    harms += [Harm("cut", chance.randrange(size)) for _ in range(5 * PER_REGION)]
    ends = Counter[int]()
    for number, harm in enumerate(harms):
        path = tmp_path / f"{number}.db"
        shutil.copy(whole, path)
        shutil.copy(log, f"{path}-wal")
        harm.do(Path(f"{path}-wal"))
        found, wrong = run(looked_at(path))
        assert wrong == [], harm
        assert found in pictures, harm
        ends[pictures.index(found)] += 1
    assert len(ends) > len(pictures) / 2, "the damage is spread over the log"
