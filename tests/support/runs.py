"""Calling the handlers of `jobs_for_tests` with real runners, and waiting for what they do."""

import asyncio
import atexit
import functools
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from blackboard.handlers.context import HandlerItem
from blackboard.handlers.registry import Handlers, load
from blackboard.model import Ended
from blackboard.runners.inline import InlineRunner
from blackboard.runners.process import ProcessRunner
from blackboard.runners.runner import Execution, HandlerCall, Runner
from tests.support.patience import patience

HERE = Path(__file__).resolve().parents[1]
JOBS = load(["jobs_for_tests"], HERE)
DUE = datetime(2026, 3, 1, 4, 5, 6, 789000, tzinfo=UTC)
PATIENCE = patience(30.0)
"""Seconds to wait for a condition before a test fails."""


@dataclass
class Told:
    """A reporter that keeps what is reported."""

    logs: list[tuple[int, str]] = field(default_factory=list)
    progressed: list[tuple[int, int]] = field(default_factory=list)
    saved: list[str] = field(default_factory=list)
    refusal: Exception | None = None
    """The error that the next saves raise, if any."""
    is_called: bool = False

    def called(self) -> None:
        self.is_called = True

    async def save(self, checkpoint: str) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.saved.append(checkpoint)

    def log(self, level: int, message: str) -> None:
        self.logs.append((level, message))

    def progress(self, done: int, total: int) -> None:
        self.progressed.append((done, total))


def call_of(
    type_: str, *, jobs: Handlers = JOBS, id_: str = "x", checkpoint: Any = None, **params: Any
) -> HandlerCall:
    return HandlerCall(
        handler=jobs[type_],
        item=HandlerItem(id_, type_, params),
        due=DUE,
        fence=7,
        attempt=2,
        worker="host:1:nonce",
        settings={"allow": ["file"]},
        fenced=True,
        checkpoint=checkpoint,
    )


async def run(runner: Runner, type_: str, *, told: Told | None = None, **params: Any) -> Ended:
    execution = runner.start(call_of(type_, **params), told or Told(), math.inf)
    return await asyncio.wait_for(execution.wait(), PATIENCE)


async def started(runner: Runner, type_: str, **params: Any) -> tuple[Execution, Told]:
    """Starts a handler, and waits until it has reported its first progress."""
    told = Told()
    execution = runner.start(call_of(type_, **params), told, math.inf)
    await eventually(lambda: bool(told.progressed))
    return execution, told


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is waited for is outside this process
            await asyncio.sleep(0.005)


@asynccontextmanager
async def processes(**settings: Any) -> AsyncIterator[ProcessRunner]:
    runner = ProcessRunner(**{"idle": 4, **settings})
    try:
        yield runner
    finally:
        await runner.close()


def with_processes(
    story: Callable[[ProcessRunner], Coroutine[Any, Any, None]], **settings: Any
) -> None:
    async def told() -> None:
        async with processes(**settings) as runner:
            await story(runner)

    asyncio.run(told())


@functools.cache
def _shared() -> tuple[asyncio.Runner, ProcessRunner]:
    async def made() -> ProcessRunner:
        return ProcessRunner(idle=4)

    loop = asyncio.Runner()
    runner = loop.run(made())

    def close() -> None:
        with loop:
            loop.run(runner.close())

    atexit.register(close)
    return loop, runner


def with_shared_processes(story: Callable[[ProcessRunner], Coroutine[Any, Any, None]]) -> None:
    """As `with_processes`, with the child processes that stories before have left idle: for tests
    of what one run is given and says, in a process that is as it was when this one started.
    """
    loop, runner = _shared()
    loop.run(story(runner))


@asynccontextmanager
async def coroutines(**settings: Any) -> AsyncIterator[InlineRunner]:
    runner = InlineRunner(**settings)
    try:
        yield runner
    finally:
        await runner.close()


def on_the_loop(
    story: Callable[[InlineRunner], Coroutine[Any, Any, None]], **settings: Any
) -> None:
    async def told() -> None:
        async with coroutines(**settings) as runner:
            await story(runner)

    asyncio.run(told())
