"""Fixtures for tests of your own jobs, in pytest.

    # conftest.py
    from blackboard.testing import azurite_board, sqlite_board

    # test_hello.py
    def test_a_town_is_greeted(sqlite_board):
        sqlite_board.add("davis", "hello", params={"name": "Davis"})
        [run] = sqlite_board.work("jobs")
        assert (run.outcome, run.error) == ("ok", "")
        assert sqlite_board.result("davis") == "Hello, Davis"

Both give each test an empty board of its own: `sqlite_board` in a file below `tmp_path`,
`azurite_board` in a table of an emulator that is started once for each pytest process (the first
time it is installed, see `tables/azurite/`). It needs `blackboard-scheduler[azurite]`, and where
that is missing its tests are skipped; but they fail when CI or BLACKBOARD_NEEDS_AZURITE is set,
because there a test that is always skipped would never be noticed.

Handlers run in this process, so that monkeypatch, breakpoints and caplog reach them: a coroutine as
always, a plain function on a thread instead of in a child process. All else is what any worker
does, and stands on `blackboard.board`. What needs a process of its own is not tested: a plain
function that passes its timeout is recorded as `timeout`, but nothing stops it, and the test waits
for it. A test of that opens its board with `blackboard.open_blocking`.

Everything blocks: a test that is a coroutine calls it by `asyncio.to_thread`.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, Unpack, cast

import pytest

from blackboard.assembly import DEFAULT_BOARD, Location
from blackboard.board import Board, RunOptions
from blackboard.clock import SystemChance
from blackboard.context import Context, HandlerItem, Signal
from blackboard.errors import BadInput
from blackboard.events import BoardEvent, RunEnded
from blackboard.handlers import Handler, registry_of
from blackboard.model import replace
from blackboard.protocol.reading import BoardTable
from blackboard.records import BoardItem, BoardRun, run_record
from blackboard.runners.inline import run_until_done
from blackboard.settings import Settings
from blackboard.tables.azure_address import CONNECTION_STRING
from blackboard.tables.azurite import Emulator, has_node, start

Answer = TypeVar("Answer")

_EMULATOR = pytest.StashKey[Emulator]()


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardUnderTest:
    """A board, and what a test does with it."""

    store: str
    """What `--store` takes, for a test that starts workers of its own."""
    board: BoardTable
    runner: asyncio.Runner

    def add(
        self,
        item_id: str,
        item_type: str,
        *,
        params: Mapping[str, Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> BoardItem:
        """Add an item that is due at once. What is left out is as `@handler` says. Raises
        BadInput.
        """
        adding = self._door().add(item_id, item_type, params=params, first="now", **options)
        return self._finish(adding)

    def run_now(self, item_id: str, *, params: Mapping[str, Any] | None = None) -> BoardItem:
        """Make an item due; `params` are laid over its own for this one run."""
        self._finish(self._door().run(item_id, params=params))
        return self.item(item_id)

    def work(
        self,
        *jobs: str | Callable[..., Any],
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[BoardRun]:
        """Work until nothing is due and nothing runs. Returns the runs that ended, in that order.
        Where a handler fails, its run has failed; nothing is raised.

        `jobs` are what `--jobs` takes, from the current folder, or functions with `@handler`.
        `settings` are the tables `[jobs.TYPE]`.
        """
        if not jobs:
            raise BadInput("jobs", "there are none", "name functions, files, modules")
        handlers = {type_: _inline(one) for type_, one in registry_of(jobs).items()}
        door = self._door(handlers, {name: dict(one) for name, one in (settings or {}).items()})
        return self._finish(_work(door))

    def item(self, item_id: str) -> BoardItem:
        """Raises Missing, a BadInput, when there is none."""
        return self._finish(self._door().item(item_id))

    def result(self, item_id: str) -> Any:
        """What the handler returned, the last time that it ended well; None before."""
        return self.item(item_id).result

    def runs(self, item_id: str) -> list[BoardRun]:
        """The history of an item, newest first; of one that never was, none."""

        async def listed(board: BoardTable) -> list[BoardRun]:
            return [run_record(run) async for run in board.runs(item_id)]

        return self.do(listed)

    def do(self, work: Callable[[BoardTable], Coroutine[Any, Any, Answer]]) -> Answer:
        """Whatever else can be done with a board: what is in `blackboard.protocol`, say."""
        return self._finish(work(self.board))

    def _door(
        self,
        handlers: Mapping[str, Handler] | None = None,
        jobs: dict[str, dict[str, Any]] | None = None,
    ) -> Board:
        location = _location(self.store, handlers=handlers, jobs=jobs)
        return Board(self.board.asked_through(resolve=location.resolve), location)

    def _finish(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return run_until_done(self.runner.get_loop(), work)


def _location(
    store: str,
    *,
    handlers: Mapping[str, Handler] | None = None,
    jobs: dict[str, dict[str, Any]] | None = None,
) -> Location:
    return Location(
        settings=Settings(jobs=jobs or {}),
        folder=Path.cwd(),
        store=store,
        name=DEFAULT_BOARD,
        handlers=handlers or {},
    )


@pytest.fixture
def sqlite_board(tmp_path: Path) -> Iterator[BoardUnderTest]:
    """An empty board in a file of this test."""
    with _board(str(tmp_path / "blackboard.db")) as board:
        yield board


@pytest.fixture
def azurite_board(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BoardUnderTest]:
    """An empty board in a table of this test, in the emulator of this pytest process."""
    # Whatever it opens, it is not the emulator.
    monkeypatch.delenv(CONNECTION_STRING, raising=False)
    with _board(_emulator(request.config).store(f"test{SystemChance().nonce()}")) as board:
        yield board


@contextmanager
def _board(store: str) -> Iterator[BoardUnderTest]:
    with asyncio.Runner() as runner:
        opening = _location(store).open(create=True)
        board = runner.run(opening.__aenter__())
        try:
            yield BoardUnderTest(store=store, board=board, runner=runner)
        finally:
            runner.run(opening.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def azurite(request: pytest.FixtureRequest) -> Emulator:
    """The emulator itself, one for each pytest process."""
    return _emulator(request.config)


def _emulator(config: pytest.Config) -> Emulator:
    """Started at first use, stopped with pytest. A fixture of its own that others need would have
    to be imported together with them.
    """
    found = config.stash.get(_EMULATOR, None)
    if found is None:
        if not has_node() and not (
            os.environ.get("CI") or os.environ.get("BLACKBOARD_NEEDS_AZURITE")
        ):
            pytest.skip("Azurite needs Node: pip install 'blackboard-scheduler[azurite]'")
        found = config.stash[_EMULATOR] = start()
        config.add_cleanup(found.stop)
    return found


def _inline(handler: Handler) -> Handler:
    """The same handler as a coroutine, which a worker runs in its own process."""
    if handler.is_async:
        return handler

    async def called(item: HandlerItem, context: Context) -> Any:
        loop = asyncio.get_running_loop()
        lost, stopping = (
            cast(Signal, _BlockingSignal(one, loop)) for one in (context.lost, context.stopping)
        )

        def save(value: Any) -> None:
            asyncio.run_coroutine_threadsafe(context.save(value), loop).result()

        blocking = replace(context, lost=lost, stopping=stopping, save=save)
        return await asyncio.to_thread(handler.function, item, blocking)

    return replace(handler, function=called, is_async=True)


@dataclass(frozen=True, slots=True)
class _BlockingSignal:
    """A signal as a plain function has it."""

    signal: Signal
    loop: asyncio.AbstractEventLoop

    @property
    def reason(self) -> str:
        return self.signal.reason

    def __bool__(self) -> bool:
        return bool(self.signal)

    def wait(self, timeout: float | None = None) -> Any:
        return asyncio.run_coroutine_threadsafe(self.signal.wait(timeout), self.loop).result()


async def _work(door: Board) -> list[BoardRun]:
    ended: list[BoardRun] = []

    def collect(event: BoardEvent) -> None:
        if isinstance(event, RunEnded):
            ended.append(event.run)

    door.subscribe(collect)
    await door.worker().work("idle")
    return ended
