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
time it is installed, see `azurite_install.py`). It needs `blackboard-scheduler[azurite]`, and where
that is missing its tests are skipped; but they fail when CI or BLACKBOARD_NEEDS_AZURITE is set,
because there a test that is always skipped would never be noticed.

Handlers run in this process, so that monkeypatch, breakpoints and caplog reach them: a coroutine as
always, a plain function on a thread instead of in a child process. What is claimed, written and
decided is what any worker does. Not tried is what needs a process of its own: a plain function that
passes its timeout is written down as `timeout`, but nothing stops it, and the test waits for it.

Everything blocks: a test that is a coroutine calls it by `asyncio.to_thread`.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import pytest

from blackboard.assembly import WorkerSettings, assemble, identity
from blackboard.azurite import Emulator, start
from blackboard.azurite_install import has_node
from blackboard.clock import SystemChance, SystemClock
from blackboard.context import Context, HandlerItem, Lost
from blackboard.environment import CONNECTION_STRING
from blackboard.errors import BadInput
from blackboard.events import Event, Events, Kind
from blackboard.handlers import Handler, handler_of
from blackboard.model import Item, Run
from blackboard.protocol import edits
from blackboard.protocol.edits import Missing
from blackboard.protocol.reading import BoardTable
from blackboard.registry import Registry, load
from blackboard.runners.contained import finish
from blackboard.runners.inline import InlineRunner
from blackboard.settings import Settings, resolver
from blackboard.spec import Spec
from blackboard.stores import open_table
from blackboard.worker.wake import CycleWake
from blackboard.worker.worker import Mode

Answer = TypeVar("Answer")

_EMULATOR = pytest.StashKey[Emulator]()
_log = logging.getLogger("blackboard")


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
        every: str | None = None,
        cron: str | None = None,
        timezone: str | None = None,
        timeout: str | None = None,
        retries: int | None = None,
        backoff: str | None = None,
    ) -> Item:
        """Add an item that is due at once. Durations are text, such as "90s" or "8h"; what is left
        out is as `@handler` says. Raises BadInput.
        """
        spec = Spec(
            every=every,
            cron=cron,
            timezone=timezone,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            params=dict(params or {}),
        )
        added = self.do(
            lambda board: edits.add(board, item_id=item_id, item_type=item_type, spec=spec)
        )
        return added.item

    def run_now(self, item_id: str, *, params: Mapping[str, Any] | None = None) -> Item:
        """Make an item due; `params` are laid over its own for this one run."""
        once = dict(params or {})
        return self.do(lambda board: edits.run_now(board, item_id, once=once)).item

    def work(
        self,
        *jobs: str | Callable[..., Any],
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[Run]:
        """Be a worker until nothing is due and nothing runs; the runs that ended, in that order.
        A handler that fails is a run that failed, no exception.

        `jobs` are what `--jobs` takes, from the current folder, or functions with `@handler`.
        `settings` are the tables `[jobs.TYPE]`.
        """
        if not jobs:
            raise BadInput("jobs", "there are none", "name functions, files, modules")
        known = Registry(found for one in jobs for found in _handlers(one))
        handlers = {type_: _here(one) for type_, one in known.items()}
        knowing = resolver(Settings(), handlers)
        return self.do(
            lambda board: _work(board.seen_through(resolve=knowing), handlers, settings or {})
        )

    def item(self, item_id: str) -> Item:
        """Raises BadInput when there is none."""
        found = self.do(lambda board: board.item(item_id))
        if found is None:
            raise Missing(item_id)
        return found

    def result(self, item_id: str) -> Any:
        """What the handler returned, the last time that it ended well; None before."""
        text = self.item(item_id).result
        return msgspec.json.decode(text) if text else None

    def runs(self, item_id: str) -> list[Run]:
        """The history of an item, newest first."""

        async def listed(board: BoardTable) -> list[Run]:
            return [run async for run in board.runs(item_id)]

        return self.do(listed)

    def do(self, work: Callable[[BoardTable], Coroutine[Any, Any, Answer]]) -> Answer:
        """Whatever else can be done with a board: what is in `blackboard.protocol`, say."""
        return finish(self.runner.get_loop(), work(self.board))


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
        table = runner.run(open_table(store, clock=SystemClock(), create=True))
        try:
            made = BoardTable.create(
                table,
                name="blackboard",
                shards=1,
                clock=SystemClock(),
                chance=SystemChance(),
                resolve=resolver(Settings(), {}),
            )
            yield BoardUnderTest(store=store, board=runner.run(made), runner=runner)
        finally:
            runner.run(table.close())


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


def _handlers(job: str | Callable[..., Any]) -> Iterable[Handler]:
    if isinstance(job, str):
        return load([job], Path.cwd()).values()
    try:
        return [handler_of(job)]
    except AttributeError:
        raise BadInput("jobs", f"{job!r} is no handler", "put @handler above it") from None


def _here(handler: Handler) -> Handler:
    """The same handler as a coroutine, which a worker runs in its own process."""
    if handler.is_async:
        return handler

    async def called(item: HandlerItem, context: Context) -> Any:
        lost = cast(Lost, _BlockingLost(context.lost, asyncio.get_running_loop()))
        return await asyncio.to_thread(handler.function, item, replace(context, lost=lost))

    return replace(handler, function=called, is_async=True)


@dataclass(frozen=True, slots=True)
class _BlockingLost:
    """`ctx.lost` of a plain function."""

    lost: Lost
    loop: asyncio.AbstractEventLoop

    @property
    def reason(self) -> str:
        return self.lost.reason

    def __bool__(self) -> bool:
        return bool(self.lost)

    def wait(self, timeout: float | None = None) -> Any:
        return asyncio.run_coroutine_threadsafe(self.lost.wait(timeout), self.loop).result()


async def _work(
    board: BoardTable,
    handlers: Mapping[str, Handler],
    job_settings: Mapping[str, Mapping[str, Any]],
) -> list[Run]:
    owner = identity(board.chance)
    events, ended = Events(owner), list[Event]()
    events.subscribe(_tell)
    events.subscribe(lambda event: ended.append(event) if event.kind is Kind.ENDED else None)
    settings, inline = WorkerSettings(), InlineRunner()
    worker = assemble(
        board,
        owner=owner,
        settings=settings,
        handlers=handlers,
        job_settings=job_settings,
        events=events,
        wake=CycleWake(settings.cycle.total_seconds()),
        inline=inline,
        process=inline,
    )
    await worker.work(Mode.UNTIL_IDLE)
    runs = [await board.run(event.item, event.fence) for event in ended]
    return [run for run in runs if run is not None]


def _tell(event: Event) -> None:
    about = " ".join(part for part in (event.kind.value, event.item) if part)
    _log.log(event.level, "%s: %s", about, event.message)
