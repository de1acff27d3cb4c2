"""Handlers that run on the worker's loop, and raise there what would end the worker."""

# ruff: noqa: RUF006 - tasks that nothing awaits are what is tested

import asyncio
import contextvars
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from blackboard import Context, Item, handler
from blackboard.runners import loop as worker_loop

KINDS: dict[str, Callable[[], BaseException]] = {
    "exit 0": lambda: SystemExit(0),
    "exit 2": lambda: SystemExit(2),
    "exit": SystemExit,
    "interrupt": KeyboardInterrupt,
    "generator": GeneratorExit,
    "base": lambda: BaseException("of no common kind"),
    "group": lambda: BaseExceptionGroup("two", [SystemExit(0), KeyboardInterrupt()]),
}


class _Unnamed(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise SystemExit(0)


class Unnamed(SystemExit, metaclass=_Unnamed):
    """Whose class does not tell its name."""


_EXIT = property(lambda _: sys.exit(0))
Shy = type("Shy", (SystemExit,), {"__class__": _EXIT, "__traceback__": _EXIT, "__str__": sys.exit})
"""Ends whatever looks at it."""

HOSTILE: dict[str, Callable[[], BaseException]] = {"unnamed": Unnamed, "shy": Shy}


class Falling:
    """A protocol whose reader raises."""

    def __init__(self, problem: BaseException) -> None:
        self._problem = problem

    def read(self) -> None:
        asyncio.get_running_loop().remove_reader(self.reader)
        os.close(self.reader)
        raise self._problem

    def start(self) -> None:
        self.reader, writer = os.pipe()
        os.close(writer)
        asyncio.get_running_loop().add_reader(self.reader, self.read)


def raising(problem: BaseException) -> None:
    raise problem


async def raising_later(problem: BaseException, *, seconds: float = 0.0) -> None:
    await asyncio.sleep(seconds)
    raise problem


async def raising_when_cancelled(problem: BaseException) -> None:
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        raise problem from None


async def in_a_group(problem: BaseException) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(raising_later(problem))


async def in_a_generator(problem: BaseException) -> Any:
    try:
        yield 1
    finally:
        raise problem


def start_done_callback(problem: BaseException) -> Any:
    future = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda _: raising(problem))
    future.set_result(None)
    return future


def loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


HOWS: dict[str, Callable[[BaseException], Any]] = {
    "a task": lambda problem: asyncio.create_task(raising_later(problem)),
    "a task of a task": lambda problem: asyncio.create_task(in_a_group(problem)),
    "a callback": lambda problem: loop().call_soon(raising, problem),
    "a timer": lambda problem: loop().call_later(0.01, raising, problem),
    "a done callback": start_done_callback,
    "a reader": lambda problem: Falling(problem).start(),
    "a thread's callback": lambda problem: asyncio.create_task(
        asyncio.to_thread(loop().call_soon_threadsafe, raising, problem)
    ),
    "a thread": lambda problem: threading.Thread(target=raising, args=(problem,)).start(),
    "an executor": lambda problem: loop().run_in_executor(None, raising, problem),
    "a context of its own": lambda problem: loop().call_soon(
        raising, problem, context=contextvars.Context()
    ),
}
ELSEWHERE = ("a thread", "an executor", "a context of its own")
"""Where nothing tells whose they are."""


@handler("a-starts")
async def start_what_raises_and_wait(item: Item, ctx: Context) -> str:
    KEPT.append(HOWS[item.params["how"]](KINDS[item.params["kind"]]()))
    await asyncio.sleep(item.params.get("seconds", 0.05))
    return "not stopped"


KEPT: list[Any] = []


@handler("a-leaves-behind")
async def leave_behind_what_raises(item: Item, ctx: Context) -> str:
    """It raises when the run is over, or when the loop ends."""
    problem = KINDS[item.params["kind"]]()
    match item.params["how"]:
        case "soon":
            KEPT.append(asyncio.create_task(raising_later(problem, seconds=0.01)))
        case "when cancelled":
            KEPT.append(asyncio.create_task(raising_when_cancelled(problem)))
        case "generator":
            generator = in_a_generator(problem)
            await anext(generator)
            KEPT.append(generator)
        case "stop":
            asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop)
        case "thread":
            threading.Thread(target=time.sleep, args=(600,)).start()
        case "executor":
            KEPT.append(ThreadPoolExecutor(1).submit(time.sleep, 600))
        case "to thread":
            KEPT.append(asyncio.create_task(asyncio.to_thread(time.sleep, 600)))
    return "left behind"


@handler("a-says-a-secret")
async def raise_a_secret_where_nothing_awaits_it(item: Item, ctx: Context) -> None:
    secret, later = item.params["secret"], item.params.get("later", 0.0)
    problem = ValueError(f"it was {secret}")
    match item.params["how"]:
        case "task":
            asyncio.create_task(raising_later(problem, seconds=later))
        case "task of a task":
            asyncio.create_task(in_a_group(problem))
        case "own task":
            asyncio.Task(raising_later(problem, seconds=later))
        case "callback":
            loop().call_later(later, raising, problem)
        case "future":
            loop().create_future().set_exception(problem)
        case "argument":
            loop().call_later(later, lambda one, _: raising(one), problem, secret)
    del problem
    await asyncio.sleep(0.02)


@handler("a-is-hostile")
async def end_the_worker_where_it_blames(item: Item, ctx: Context) -> None:
    kind, later = item.params["kind"], item.params.get("later", 0.0)
    problem = (HOSTILE | KINDS)[kind]()
    match item.params["how"]:
        case "task":
            asyncio.create_task(raising_later(problem, seconds=later))
        case "gather":
            await asyncio.gather(raising_later(problem))
        case "callback":
            loop().call_later(later, raising, problem)
        case "exception handler":
            loop().set_exception_handler(lambda *_: sys.exit(0))
            loop().call_later(later, raising, problem, context=contextvars.Context())
        case "blame":
            worker_loop._owner.set(sys.exit)  # type: ignore[arg-type]
            asyncio.create_task(raising_later(problem, seconds=later))
    await asyncio.sleep(0 if later else 0.02)


@handler("a-runs-another-loop")
async def run_another_loop(item: Item, ctx: Context) -> bool:
    """Returns whether a thread of that loop has outlived it."""

    def alone() -> bool:
        return worker_loop.run_loop(asyncio.to_thread(threading.current_thread)).is_alive()

    return await asyncio.to_thread(alone)


@handler("a-cancels-all-tasks")
async def cancel_all_tasks(item: Item, ctx: Context) -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(60)


@handler("a-closes-what-all-share")
async def close_what_all_share(item: Item, ctx: Context) -> int:
    """As a program does at its end."""
    with ThreadPoolExecutor(1) as pool:
        loop().set_default_executor(pool)
    for _ in range(2):
        await loop().shutdown_asyncgens()
        await loop().shutdown_default_executor()
    return await asyncio.to_thread(int, "7")


@handler("a-listens-to-signals")
async def listen_to_signals(item: Item, ctx: Context) -> bool:
    """As a program does that is to stop in its own way."""
    for number in (signal.SIGTERM, signal.SIGINT):
        loop().add_signal_handler(number, print)
    loop().remove_signal_handler(signal.SIGTERM)
    heard = asyncio.Event()
    loop().add_signal_handler(signal.SIGUSR1, heard.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await heard.wait()
    return loop().remove_signal_handler(signal.SIGUSR1)


@handler("a-ends-its-worker")
async def end_the_worker(item: Item, ctx: Context) -> None:
    match item.params["how"]:
        case "os._exit":
            os._exit(item.params["code"])
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(item.params["code"])


@handler("a-forks")
async def fork(item: Item, ctx: Context) -> None:
    """Forks a process, which goes back to the loop: here, at once, in a task, in a callback; or
    which does not, and drops a future that asyncio has something to say about.
    """
    asyncio.create_task(_clean_up())
    await asyncio.sleep(0)
    match item.params["how"]:
        case "returns":
            os.fork()
        case "awaits":
            os.fork()
            await asyncio.sleep(0)
        case "in a task":
            await asyncio.create_task(_forking())
        case "in a callback":
            asyncio.get_running_loop().call_soon(os.fork)
            await asyncio.sleep(0.01)
        case "works on":
            dropped = asyncio.get_running_loop().create_future()
            dropped.set_exception(OSError("not retrieved"))
            if (pid := os.fork()) == 0:
                del dropped
                os._exit(7)
            dropped.exception()
            _, status = await asyncio.to_thread(os.waitpid, pid, 0)
            assert os.waitstatus_to_exitcode(status) == 7


async def _clean_up() -> None:
    """Is ready to go on at each turn of the loop, until it writes which process cleaned up."""
    try:
        for _ in range(50):
            await asyncio.sleep(0)
    finally:
        descriptor = os.open("cleaned-up", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        os.close(descriptor)


async def _forking() -> None:
    os.fork()
