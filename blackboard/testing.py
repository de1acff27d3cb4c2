"""Fixtures for tests of your own jobs, in pytest.

    # conftest.py
    from blackboard.testing import azurite_board, sqlite_board

    # test_hello.py
    def test_a_town_is_greeted(sqlite_board):
        sqlite_board.add("davis", "hello", params={"name": "Davis"})
        [run] = sqlite_board.work("jobs")
        assert (run.outcome, run.error) == ("ok", None)
        assert sqlite_board.result("davis") == "Hello, Davis"

    def test_a_retry_comes_after_its_backoff(sqlite_board):
        sqlite_board.add("davis", "hello", params={"fails": True}, retries=1, backoff="1h")
        sqlite_board.work("jobs")
        sqlite_board.advance("1h")  # nothing sleeps
        [retry] = sqlite_board.work("jobs")
        assert retry.attempt == 2

`context(handler)` is a `ctx` for calling a handler as the function that it is.

Both fixtures give each test an empty board of its own: `sqlite_board` in a file below `tmp_path`,
`azurite_board` in a table of an emulator that is started once for each pytest process (the first
time it is installed, see `tables/azurite/`). It needs `blackboard-scheduler[azurite]`, and where
that is missing its tests are skipped; but they fail when CI or BLACKBOARD_NEEDS_AZURITE is set,
because there a test that is always skipped would never be noticed.

Handlers run in this process, so that monkeypatch, breakpoints and caplog reach them: a coroutine as
always, a plain function on a thread instead of in a child process. All else is what any worker
does. What needs a process of its own is not tested: a plain function that passes its timeout is
recorded as `timeout`, and its thread goes on until it returns, or pytest ends, which does not wait
for it. A test of that opens its board with `blackboard.open_blocking`.

The board is one of `open_blocking`: each call waits. Any thread may call it, but not an `async def`
handler: that runs on the thread that would have to answer.
"""

import inspect
import logging
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, Unpack, cast

import pytest

from blackboard.blocking import ItemVerbs, Portal
from blackboard.board import Board, opened
from blackboard.clock import Clock, SystemChance, SystemClock
from blackboard.errors import BadInput, BlackboardError
from blackboard.events import BoardEvent, RunEnded
from blackboard.handlers.context import Context, HandlerItem, decoded_checkpoint, progress_of
from blackboard.handlers.handler import Handler
from blackboard.handlers.registry import registry_of
from blackboard.inputs import argument, checked
from blackboard.location import DEFAULT_BOARD, Location
from blackboard.model import replace
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.results import warnings_of
from blackboard.records import BoardItem, BoardRun
from blackboard.runners.outcome import fitting_checkpoint, fitting_warning
from blackboard.runners.resources import ProcessResources
from blackboard.runners.secrets import NOTHING
from blackboard.runners.signals import BlockingSignal, LoopSignal
from blackboard.schedule.times import duration_of
from blackboard.settings import Settings
from blackboard.spec import RunOptions
from blackboard.tables.azure_address import CONNECTION_STRING
from blackboard.tables.azurite import Emulator, has_node, start
from blackboard.tables.base import MAX_VALUE
from blackboard.tasks import in_thread

Answer = TypeVar("Answer")

_EMULATOR = pytest.StashKey[Emulator]()

STEP = timedelta(milliseconds=1)
"""The least by which `work(lasting=...)` turns the clock on."""

MOST_RUNS = 2_000
"""Runs of an item in a call of `work` without `lasting`: one that asks for another run each time
would never be done. `missed_limit` allows half of that."""


class TurnedClock(SystemClock):
    """The host's clocks, and how far a test has turned them on."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self._ahead

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead.total_seconds()

    def turn(self, duration: timedelta) -> None:
        self._ahead += duration


class BoardUnderTest(ItemVerbs):
    """A board with its verbs, which wait, and what else a test does with it."""

    def __init__(self, board: Board, portal: Portal, *, clock: TurnedClock | None) -> None:
        """`clock` is None where the store has one of its own."""
        super().__init__(board, portal)
        self.store = board.store
        """The argument of `--store`, for a test that starts workers of its own."""
        self._clock = clock

    def now(self) -> datetime:
        """The time on the board."""
        return self.do(lambda board: board.table.now())

    def advance(self, duration: str | float | timedelta) -> datetime:
        """Turn the clock of the board on, by "2h", seconds or a timedelta; returns the time then.
        Nothing runs meanwhile: what comes due is run by the next `work`. Raises BadInput on a
        store with a clock of its own.
        """
        if self._clock is None:
            problem = "the clock of this board is the emulator's, and cannot be turned"
            raise BadInput("advance", problem, "use sqlite_board")
        self._clock.turn(duration_of(duration, "advance"))
        return self.now()

    def add(
        self,
        item_id: str,
        item_type: str,
        *,
        params: Any = None,
        first: str | datetime | None = "now",
        **options: Unpack[RunOptions],
    ) -> BoardItem:
        """Add an item, which is due at once if nothing else is said, as `Board.add` does. What is
        left out is as `@handler` says. Its params are checked when it runs. Raises BadInput.
        """
        return super().add(item_id, item_type, params=params, first=first, **options)

    def work(
        self,
        *jobs: str | os.PathLike[str] | Callable[..., Any],
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        lasting: str | float | timedelta | None = None,
    ) -> list[BoardRun]:
        """Work until nothing is due and nothing runs. Returns the runs that ended, in that order.
        Where a handler fails, its run has failed; nothing is raised. `lasting` goes on for so long
        on the clock of the board, which is turned on to each moment at which something is due.
        Raises BlackboardError for an item that is due again whenever it has run, 2,000 times.

        `jobs` are what `--jobs` takes, from the current folder, or functions with `@handler`.
        `settings` are the tables `[jobs.TYPE]`.
        """
        if not jobs:
            raise BadInput("jobs", "there are none", "name functions, files, modules")
        tables = argument("settings", settings or {}, Mapping)
        for name, table in tables.items():
            argument(f"settings.{name}", table, Mapping)
        call = self._portal.call
        handlers = {name: _inline(handler, call) for name, handler in registry_of(jobs).items()}
        declared = Settings(jobs={name: dict(own) for name, own in tables.items()})
        location = _location(self.store, clock=self._clock, settings=declared, handlers=handlers)

        def works(board: BoardTable) -> Coroutine[Any, Any, list[BoardRun]]:
            return _work(Board(board.using(resolve=location.resolve), location))

        if lasting is None:
            return self.do(works)
        runs: list[BoardRun] = []
        end = self.now() + duration_of(lasting, "lasting")
        while True:
            began = self.now()
            runs += self.do(works)
            waiting = [item for item in self.items(state="waiting") if item.type in handlers]
            # Those that were ready before cannot run, as the board is paused, say.
            ready = [item.ready for item in waiting if item.ready and item.ready > began]
            if not ready or min(ready) > end:
                break
            self.advance(max(min(ready) - self.now(), STEP))
        if (left := end - self.now()) > timedelta(0):
            self.advance(left)
        return runs

    def result(self, item_id: str) -> Any:
        """The result of the last run that ended well; None before."""
        return self.item(item_id).result

    def do(self, work: Callable[[BoardTable], Coroutine[Any, Any, Answer]]) -> Answer:
        """Does other work with the board: with functions of `blackboard.protocol`, say."""
        return self._portal.call(work(self._inner._table))  # noqa: SLF001 - its own board


def _location(
    store: str,
    *,
    clock: Clock | None,
    settings: Settings | None = None,
    handlers: Mapping[str, Handler] | None = None,
) -> Location:
    return Location(
        clock=clock or SystemClock(),
        settings=settings or Settings(),
        folder=Path.cwd(),
        store=store,
        name=DEFAULT_BOARD,
        handlers=handlers or {},
    )


@pytest.fixture
def sqlite_board(tmp_path: Path) -> Iterator[BoardUnderTest]:
    """An empty board in a file of this test."""
    with _board(str(tmp_path / "blackboard.db"), TurnedClock()) as board:
        yield board


@pytest.fixture
def azurite_board(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BoardUnderTest]:
    """An empty board in a table of this test, in the emulator of this pytest process."""
    # The connection string of the user does not open the emulator.
    monkeypatch.delenv(CONNECTION_STRING, raising=False)
    with _board(_emulator(request.config).store(f"test{SystemChance().nonce()}")) as board:
        yield board


@contextmanager
def _board(store: str, clock: TurnedClock | None = None) -> Iterator[BoardUnderTest]:
    opening = opened(_location(store, clock=clock), create=True)
    with Portal() as portal, portal.hold(opening) as board:
        yield BoardUnderTest(board, portal, clock=clock)


@pytest.fixture(scope="session")
def azurite(request: pytest.FixtureRequest) -> Emulator:
    """The emulator itself, one for each pytest process."""
    return _emulator(request.config)


def _emulator(config: pytest.Config) -> Emulator:
    """The emulator, started at first use, stopped with pytest. Were it a fixture that the others
    need, tests would have to import it, too.
    """
    emulator = config.stash.get(_EMULATOR, None)
    if emulator is None:
        if not has_node() and not (
            os.environ.get("CI") or os.environ.get("BLACKBOARD_NEEDS_AZURITE")
        ):
            pytest.skip("Azurite needs Node: pip install 'blackboard-scheduler[azurite]'")
        emulator = config.stash[_EMULATOR] = start()
        config.add_cleanup(emulator.stop)
    return emulator


def _inline(handler: Handler, call: Callable[[Coroutine[Any, Any, Any]], Any]) -> Handler:
    """The same handler as a coroutine, which a worker runs in its own process. `call` runs a
    coroutine on the loop of the worker.
    """
    if handler.is_async:
        return handler

    async def called(item: HandlerItem, context: Context) -> Any:
        blocking = replace(
            context,
            lost=BlockingSignal(cast(LoopSignal, context.lost), call),
            stopping=BlockingSignal(cast(LoopSignal, context.stopping), call),
            save=lambda value: call(context.save(value)),
        )
        return await in_thread(_called, handler, item, blocking)

    return replace(handler, function=called, is_async=True, resources=None)


def _called(handler: Handler, item: HandlerItem, context: Context) -> Any:
    """Calls a handler on one thread, as in a child process, with its resources."""
    with closing(ProcessResources()) as resources:
        opened = resources.of(handler.type, handler.resources)
        return handler.function(item, replace(context, resources=opened))


# ---- a handler as a function


async def _done(work: Callable[[], Any]) -> Any:
    return work()


class TurnedSignal:
    """`ctx.lost` or `ctx.stopping` of `context()`: true from `set` on. `wait` does not wait."""

    def __init__(self, do: Callable[[Callable[[], Any]], Any]) -> None:
        """`do` is what `wait` does with the function that gives its answer."""
        self.reason = ""
        self._is_set = False
        self._do = do

    def set(self, reason: str = "as the test has it") -> None:
        self.reason, self._is_set = reason, True

    def __bool__(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> Any:  # noqa: ARG002
        return self._do(self.__bool__)


class RecordingContext(Context, frozen=True, kw_only=True):
    """A `ctx` that records what its handler does with it."""

    lost: TurnedSignal
    stopping: TurnedSignal
    warnings: list[str]
    progressed: list[tuple[int, int]]
    saved: list[Any]


@checked
def context(
    handler: Callable[..., Any],
    *,
    settings: Mapping[str, Any] | None = None,
    due: datetime | None = None,
    attempt: int = 1,
    fence: int = 1,
    checkpoint: Any = None,
    resources: Any = None,
    time_left: float | None = None,
) -> RecordingContext:
    """Makes the `ctx` of a direct call of this handler: an `async def` awaits `ctx.save` and `wait`
    of its signals, a plain function does not. It records `warnings`, what was `saved`, as the next
    run would get it, and `progressed`; `ctx.log` is the logger `blackboard.testing`, which caplog
    sees; `ctx.lost.set()` is for the test. Raises BadInput for what cannot be used.
    """
    if due is not None and due.utcoffset() is None:
        raise BadInput("due", f"{due} has no offset", "give an aware datetime")
    do = _done if inspect.iscoroutinefunction(handler) else lambda work: work()
    warnings = list[str]()
    progressed = list[tuple[int, int]]()
    saved = list[Any]()

    def warn(text: str) -> None:
        warnings[:] = warnings_of([*warnings, fitting_warning(text, NOTHING)])

    def keep(value: Any) -> None:
        text = fitting_checkpoint(value, NOTHING, limit=MAX_VALUE)
        saved.append(decoded_checkpoint(text))

    return RecordingContext(
        due=due or SystemClock().now(),
        fence=fence,
        attempt=attempt,
        worker="host:1:test",
        settings=dict(settings or {}),
        log=logging.getLogger("blackboard.testing"),
        lost=TurnedSignal(do),
        stopping=TurnedSignal(do),
        progress=lambda done, total: progressed.append(progress_of(done, total)),
        warn=warn,
        resources=resources,
        checkpoint=checkpoint,
        save=lambda value: do(lambda: keep(value)),
        time_left=lambda: time_left,
        warnings=warnings,
        progressed=progressed,
        saved=saved,
    )


async def _work(door: Board) -> list[BoardRun]:
    ended: list[BoardRun] = []
    times, worker = Counter[str](), door.worker()

    def collect(event: BoardEvent) -> None:
        if isinstance(event, RunEnded):
            ended.append(event.run)
            times[event.id] += 1
            if times[event.id] == MOST_RUNS:
                worker.stop()

    door.subscribe(collect)
    await worker.work("idle")
    for item_id, number in times.items():
        if number >= MOST_RUNS:
            problem = f"{item_id} ran {number:,} times: it is due again whenever it has run"
            raise BlackboardError(problem)
    return ended
