"""A board on a disk that is full, or fails: nothing that was acknowledged is lost, nothing is half
written, and when the disk is well again the work goes on.

The n-th write of a whole story fails, for every n, with libfiu; and of real workers a few writes in
a hundred. The long form of the proof adds the other ways to open the file, and has more items for
workers on a disk that fails now and then.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from blackboard.protocol.edits import remove
from blackboard.tables.memory import MemoryTable
from blackboard.tables.sqlite import SqliteTable
from tests.proof.chaos.disk import STEPS, Picture, begin, picture
from tests.proof.chaos.programs import program
from tests.proof.chaos.test_killed import everything, problems, traceback_in, twice
from tests.proof.form import LONG
from tests.support.boards import TurningClock, disagreements
from tests.support.patience import patience
from tests.support.processes import Site, Started, eventually, site, whole_lines
from tests.support.stores import Run

CHILD = Path(__file__).with_name("disk_child.py")
WAYS = ("goes on", "goes on, synchronous", "dies", "dies, synchronous")
FLAKY_ITEMS = 60 if LONG else 24
EIO = 5
FLAKY = ("posix/io/rw/pwrite", "posix/io/sync/fsync", "posix/io/sync/fdatasync")
RATE = 0.02


@pytest.fixture
def fast_folder() -> Iterator[Path]:
    """In memory where that is possible: what fails here is not the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


# ---- the n-th write fails


def pictures() -> list[Picture]:
    """Of the board, before the story and after each step."""

    async def told() -> list[Picture]:
        clock = TurningClock()
        table = MemoryTable(clock)
        story = await begin(table, clock)
        seen = [await picture(table)]
        for step in STEPS:
            await step(story)
            seen.append(await picture(table))
        return seen

    return asyncio.run(told())


async def looked_at(path: Path) -> tuple[Picture, list[str]]:
    """What is on a board's file now, and what is wrong with it."""
    clock = TurningClock()
    table = await SqliteTable.open(path, clock)
    try:
        wrong = await table.integrity()
        wrong += await disagreements((await begin(table, clock)).board)
        return await picture(table), wrong
    finally:
        await table.close()


def stories(folder: Path, way: str) -> list[dict[str, Any]]:
    """What the child has to say of each of its stories."""
    fiu_run = program("fiu-run", package="fiu-utils")
    done = subprocess.run(
        [fiu_run, "-x", "-f", "", sys.executable, str(CHILD), str(folder), way],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return [msgspec.json.decode(line) for line in done.stdout.splitlines()]


@pytest.mark.case("DF02", on="sqlite")
@pytest.mark.parametrize("way", WAYS if LONG else (WAYS[0], WAYS[3]))
def test_df02_whichever_write_fails_what_was_acknowledged_is_there_and_nothing_else(
    way: str, fast_folder: Path, run: Run
) -> None:
    """A step that was refused is not on the board; of one whose answer is not known, all or
    nothing.
    """
    expected = pictures()
    told = stories(fast_folder, way)
    assert len(told) > 200
    assert {"pwrite", "fdatasync"} <= {one["met"] for one in told}
    for one in told:
        steps = max(one["done"] - 1, 0)
        found, wrong = run(looked_at(fast_folder / f"{one['number']}.db"))
        maybe = any(answer.startswith("Unknown") for answer in one["answers"])
        goes_on = way.startswith("goes on")
        assert wrong == [], one
        assert not goes_on or steps == len(STEPS), one
        assert found in expected[steps : steps + 1 + (maybe and not goes_on)], one
        assert all("disk" in words or words.startswith("Unknown") for words in one["answers"]), one


def test_whichever_write_fails_a_board_that_could_not_be_made_can_be_made_again(
    fast_folder: Path,
) -> None:
    told = stories(fast_folder, "makes")
    assert len(told) > 20
    assert [one for one in told if one["done"] != 1] == []


# ---- workers on such a disk


@contextmanager
def disk_of(folder: Path, size: str) -> Iterator[Path]:
    """A disk of its own, in memory. Root alone can mount it, and where CI is set root must."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid():
        pytest.skip("a small disk can be mounted by root alone")
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        reason = f"no disk can be mounted here: {mounted.stderr.decode().strip()}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def runs_of(place: Site) -> dict[tuple[str, int], str]:
    """All that is in the history: the outcome by id and fence."""
    told = everything(place)
    return {(run.id, run.fence): run.outcome.value for _, runs in told for run in runs}


def good_runs(place: Site) -> set[tuple[str, int]]:
    return {run for run, outcome in runs_of(place).items() if outcome == "ok"}


def noted(place: Site) -> set[tuple[str, int]]:
    """The runs that began, as the handlers have it."""
    lines = whole_lines(place.folder / "notes")
    return {(line.split()[1], int(line.split()[2])) for line in lines}


def check_what_is_left(place: Site, workers: Sequence[Started]) -> None:
    """After all have ended in good order: the board is whole, and the history is complete."""
    for worker in workers:
        worker.send(signal.SIGTERM)
    assert [worker.ended() for worker in workers] == [0] * len(workers)
    assert [wrong for item, runs in everything(place) for wrong in problems(item, runs)] == []
    assert noted(place) <= runs_of(place).keys()
    assert twice(place) == []
    assert place.doctor()["findings"] == []
    assert traceback_in(place.started) == []


@pytest.mark.case("DF02", on="sqlite")
def test_df02_workers_on_a_disk_that_they_fill_say_so_and_go_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    with disk_of(tmp_path / "disk", "8m") as disk, site(tmp_path, str(disk / "b.db")) as place:
        filler = disk / "filler"
        filler.write_bytes(b"x" * 7_000_000)
        ids = [f"item-{number}" for number in range(20)]
        place.add(*ids, type_="quick", every="1s", stale_after="5s")
        worker = place.works(place.worker(cycle="200ms"))
        eventually(lambda: "the disk is full; make room" in worker.text, "the disk is full")
        added = one_more_is_added_or_refused(place)
        at_full = good_runs(place)
        assert len(at_full) > 20
        filler.unlink()
        if added:
            place.run(lambda board: remove(board, "late"))
        eventually(lambda: len(good_runs(place)) > len(at_full) + 40, "the runs go on")
        assert at_full <= good_runs(place)
        check_what_is_left(place, [worker])


def one_more_is_added_or_refused(place: Site) -> bool:
    """Whether it was added: a small batch may find room in the log all the same."""
    added = place.start("add", "late", "--type", "rare", "--store", place.store)
    code = added.ended()
    assert code in {0, 2}
    assert (place.run(lambda board: board.item("late")) is not None) == (code == 0)
    if code != 0:
        assert added.text.splitlines()[-1].endswith("(the disk is full; make room)")
    return code == 0


@pytest.mark.case("DF02", on="sqlite")
@pytest.mark.of_sqlite
@pytest.mark.timeout(400)
def test_df02_workers_on_a_disk_that_fails_now_and_then_lose_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"item-{number}" for number in range(FLAKY_ITEMS)]
    site.add(*ids, type_="quick", every="3s", stale_after="5s")
    pipes = site.folder / "fiu"
    with monkeypatch.context() as environ:
        for name, text in listening(pipes).items():
            environ.setenv(name, text)
        workers = [site.worker(), site.worker()]
    for worker in workers:
        site.works(worker)
    tell(pipes, workers, "enable_random", f",probability={RATE},failinfo={EIO}")
    eventually(lambda: all("disk I/O error" in one.text for one in workers), "the disk fails")
    eventually(lambda: len(good_runs(site)) > 2 * FLAKY_ITEMS, "the runs go on", seconds=240)
    tell(pipes, workers, "disable")
    seen = good_runs(site)
    eventually(
        lambda: {item_id for item_id, _ in good_runs(site) - seen} == set(ids),
        "every item runs again",
    )
    assert seen <= good_runs(site)
    check_what_is_left(site, workers)


def listening(pipes: Path) -> dict[str, str]:
    """The environment that fiu-run gives to a program, which then listens to fiu-ctrl."""
    fiu_run = program("fiu-run", package="fiu-utils")
    command = [fiu_run, "-x", "-f", str(pipes), "env", "-0"]
    given = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    pairs = (line.split("=", 1) for line in given.split("\0") if line)
    return {name: text for name, text in pairs if name == "LD_PRELOAD" or name.startswith("FIU_")}


def tell(pipes: Path, workers: Sequence[Started], what: str, how: str = "") -> None:
    """A disk that is well when they start: one that fails at once refuses to be opened."""
    fiu_ctrl = program("fiu-ctrl", package="fiu-utils")
    commands = [part for point in FLAKY for part in ("-c", f"{what} name={point}{how}")]
    pids = [str(worker.pid) for worker in workers]
    subprocess.run([fiu_ctrl, "-f", str(pipes), *commands, *pids], check=True, timeout=patience(60))
