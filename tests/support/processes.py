"""Real workers on a real board: how a test starts them, waits for what they do, and ends them.

All processes are killed at the end, also those that they have started. No test assumes how long
something takes: it waits for a condition, and gives up only after `PATIENCE`.
"""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import psutil

from blackboard.clock import SystemChance, SystemClock
from blackboard.handlers.registry import Handlers, load
from blackboard.model import Item, Lock, Outcome, Run
from blackboard.protocol.additions import New, add
from blackboard.protocol.board_table import BoardTable
from blackboard.settings import Settings, resolver
from blackboard.spec import Spec
from blackboard.stores import open_table
from tests.support.patience import is_over, patience

HERE = Path(__file__).resolve().parents[1]
FOLDER = HERE / "chaos_jobs"
PATIENCE = patience(90.0)
"""Seconds to wait for a condition before a test fails."""
NOTHING: Mapping[str, str] = MappingProxyType({})

Answer = TypeVar("Answer")


def eventually(condition: Callable[[], Answer], what: str, *, seconds: float = PATIENCE) -> Answer:
    """Waits until `condition` returns a true value, and returns it. Slow conditions, such as those
    that start processes, are checked less often: they take a third of the time at most.
    """
    begun = time.monotonic()
    while True:
        looked = time.monotonic()
        if found := condition():
            return found
        assert not is_over(begun, seconds), f"it did not happen within {seconds:g} s: {what}"
        time.sleep(max(0.02, 2 * (time.monotonic() - looked)))


def whole_lines(path: Path) -> list[str]:
    """The lines of a file that other processes write to, without an incomplete last one."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


def halt(process: subprocess.Popen[bytes], store: str) -> None:
    """Sends SIGSTOP at a moment when the process does not write: a process that is stopped in a
    write to SQLite blocks all others as long as it is stopped.
    """
    process.send_signal(signal.SIGSTOP)
    while Path(store).is_file() and not can_write(Path(store)):
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGSTOP)


def can_write(file: Path) -> bool:
    """Whether others can write to a board's file now, or soon."""
    with closing(sqlite3.connect(file, timeout=0.5, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
    return True


def own_environ() -> dict[str, str]:
    """This environment, without variables that are settings of a board."""
    return {name: text for name, text in os.environ.items() if "BLACKBOARD" not in name}


@dataclass
class Started:
    """A process that was started here: a worker, or several under a supervisor."""

    process: subprocess.Popen[bytes]
    told: Path
    """The file with its stderr."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def text(self) -> str:
        return self.told.read_text(errors="replace")

    @property
    def events(self) -> list[dict[str, Any]]:
        """The JSON lines that it has logged."""
        return [json.loads(line) for line in self.text.splitlines() if line.startswith("{")]

    def has_told(self, event: str, **about: Any) -> bool:
        """Whether it has logged such an event, with such values."""
        return any(
            one["event"] == event and all(one.get(name) == about[name] for name in about)
            for one in self.events
        )

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, *, seconds: float = PATIENCE) -> int:
        """Waits for its end; returns its exit code, negative for the signal that ended it."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {seconds:g} s:\n{self.text}") from None


@dataclass
class Site:
    """A folder, a board, and the processes that were started there."""

    folder: Path
    store: str
    """The address of the board's store."""
    started: list[Started] = field(default_factory=list)
    orphans: list[psutil.Process] = field(default_factory=list)
    """Descendants that were found of processes that were started here."""

    # ---- processes

    def worker(
        self,
        *args: str,
        cycle: str = "500ms",
        slots: int = 8,
        store: str = "",
        environ: Mapping[str, str] = NOTHING,
    ) -> Started:
        """Starts `blackboard worker` with all handlers of the chaos jobs; with another URL of the
        store, if one is given.
        """
        jobs = ("--init", "--jobs", str(FOLDER), "--cycle", cycle, "--slots", str(slots))
        return self.start("worker", "--store", store or self.store, *jobs, *args, environ=environ)

    def start(
        self,
        *args: str,
        environ: Mapping[str, str] = NOTHING,
        program: Sequence[str] = ("-m", "blackboard"),
    ) -> Started:
        told = self.folder / f"stderr-{len(self.started)}"
        with told.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, *program, *args],
                cwd=self.folder,
                env={**own_environ(), **environ},
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                start_new_session=True,
            )
        self.started.append(Started(process, told))
        return self.started[-1]

    def works(self, worker: Started) -> Started:
        """Waits until it has logged that it works."""
        eventually(
            lambda: "worker started" in worker.text or worker.process.poll() is not None,
            "the worker starts",
        )
        assert worker.process.poll() is None, worker.text
        return worker

    def below(self, started: Started) -> list[psutil.Process]:
        """All its descendants."""
        with suppress(psutil.NoSuchProcess):
            found = psutil.Process(started.pid).children(recursive=True)
            self.orphans += found
            return found
        return []

    def close(self) -> None:
        for one in self.started:
            self.below(one)
        for one in self.started:
            if one.process.poll() is None:
                one.process.kill()
                one.process.wait()
        for orphan in self.orphans:
            with suppress(psutil.NoSuchProcess):
                orphan.kill()  # psutil notices a process number that was reused

    # ---- the board

    def run(self, work: Callable[[BoardTable], Coroutine[Any, Any, Answer]]) -> Answer:
        """Runs a coroutine function on the board, opened as in a process of its own."""

        async def done() -> Answer:
            clock = SystemClock()
            table = await open_table(self.store, clock, create=True)
            try:
                board = await BoardTable.create(
                    table,
                    name="blackboard",
                    shards=1,
                    clock=clock,
                    chance=SystemChance(),
                    resolve=resolver(Settings(), HANDLERS),
                )
                return await work(board)
            finally:
                await table.close()

        return asyncio.run(done())

    def add(self, *ids: str, type_: str, every: str | None = "1h", **said: Any) -> None:
        """Adds items that are due at once. Arguments that are no fields of a spec are params."""
        fields = {name: said.pop(name) for name in tuple(said) if name in Spec.__struct_fields__}
        spec = Spec(every=every, params={"folder": str(self.folder), **said}, **fields)

        async def added(board: BoardTable) -> None:
            for item_id in ids:
                await add(board, New(id=item_id, type=type_, spec=spec))

        self.run(added)

    def item(self, item_id: str) -> Item:
        found = self.run(lambda board: board.item(item_id))
        assert found is not None
        return found

    def lock(self, item_id: str) -> Lock | None:
        return self.run(lambda board: board.lock(item_id))

    def runs(self, item_id: str) -> list[Run]:
        """The history of an item, the oldest first."""

        async def found(board: BoardTable) -> list[Run]:
            return [run async for run in board.runs(item_id)][::-1]

        return self.run(found)

    def outcomes(self, item_id: str) -> list[tuple[int, str]]:
        return [(run.fence, run.outcome.value) for run in self.runs(item_id)]

    def is_ok(self, *ids: str) -> bool:
        """Whether the latest run of each item ended `ok`, and none of them runs."""
        found = [self.item(item_id) for item_id in ids]
        return all(one.outcome is Outcome.OK and not one.running for one in found)

    def doctor(self, environ: Mapping[str, str] = NOTHING) -> dict[str, Any]:
        """The report of `blackboard doctor`."""
        doctor = subprocess.run(
            [sys.executable, "-m", "blackboard", "doctor", "--store", self.store, "--json"],
            capture_output=True,
            check=False,
            cwd=self.folder,
            env={**own_environ(), **environ},
        )
        return dict(json.loads(doctor.stdout))

    # ---- files of handlers

    def mark(self, name: str) -> None:
        """Makes a file that some handlers wait for."""
        (self.folder / name).touch()

    def has_begun(self, item_id: str, fence: int = 1) -> bool:
        return (self.folder / f"began-{item_id}-{fence}").exists()

    def begun(self, item_id: str, fence: int = 1) -> int:
        """Waits until a run of the item has begun; returns the number of its process."""
        eventually(lambda: self.has_begun(item_id, fence), f"run {fence} of {item_id} begins")
        return int((self.folder / f"began-{item_id}-{fence}").read_text())


HANDLERS: Handlers = load([str(FOLDER)], HERE)


@contextmanager
def site(folder: Path, store: str) -> Iterator[Site]:
    """A site in `folder`; all its processes are killed at the end."""
    made = Site(folder, store)
    try:
        yield made
    finally:
        made.close()


def is_gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def all_gone(processes: Sequence[psutil.Process]) -> bool:
    return all(not one.is_running() or one.status() == psutil.STATUS_ZOMBIE for one in processes)
