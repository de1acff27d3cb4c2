"""Handlers with resources. What is done to them is written to the file named by RESOURCES."""

import asyncio
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from blackboard import Context, Item, LeaseLost, Skip, handler


def note(what: str) -> None:
    with Path(os.environ["RESOURCES"]).open("a") as file:
        file.write(f"{what}\n")


class Pool:
    """Opens a file at its first use, and keeps it."""

    def __init__(self) -> None:
        self.uses = 0
        self.file: Any = None

    def use(self) -> list[Any]:
        self.file = self.file or tempfile.TemporaryFile()  # noqa: SIM115 - a connection stays open
        self.uses += 1
        return [os.getpid(), self.uses]


@contextmanager
def pool() -> Iterator[Pool]:
    note("opened")
    match os.environ.get("RESOURCES_FAIL"):
        case "skip":
            raise Skip("no database today")
        case "exit":
            sys.exit()
        case str():
            raise OSError("no route")
    one = Pool()
    yield one
    if one.file is not None:
        one.file.close()
    note("closed")


@contextmanager
def slow_to_close() -> Iterator[None]:
    yield
    note("closing")
    while "go" not in Path(os.environ["RESOURCES"]).read_text():
        time.sleep(0.005)


@asynccontextmanager
async def async_pool() -> AsyncIterator[Pool]:
    task = asyncio.current_task()
    with pool() as one:
        await asyncio.sleep(0)
        yield one
        assert asyncio.current_task() is task


@handler("pooled", resources=pool)
def pooled(item: Item, ctx: Context) -> Any:
    if item.params.get("fails"):
        raise ValueError("as it was told")
    if item.params.get("leaves"):
        os.environ["LEFT"] = "1"
    return ctx.resources.use()


@handler("slow-to-close", resources=slow_to_close)
def leaves_a_variable_and_closes_slowly(item: Item, ctx: Context) -> str:
    os.environ["LEFT"] = "1"
    return "done"


class Outliving:
    """A thread of one run, which goes on in the next."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.heard: list[str] = []
        self.thread = threading.Thread()

    def start(self, item: Item, ctx: Context) -> None:
        def go_on() -> None:
            if item.params.get("saves"):
                self.save(ctx)
            self.gate.wait()
            logging.getLogger("lib").warning("of %s", item.params["token"])
            print(f"{item.params['token']} is printed")  # noqa: T201
            ctx.log.warning("of the first")
            ctx.warn("of the first")
            ctx.progress(1, 2)
            self.save(ctx)

        self.thread = threading.Thread(target=go_on, daemon=True)
        self.thread.start()

    def save(self, ctx: Context) -> None:
        try:
            ctx.save("of the first")
        except LeaseLost as lost:
            self.heard.append(str(lost))


@contextmanager
def outliving() -> Iterator[Outliving]:
    yield Outliving()


@handler("outlived", resources=outliving)
def outlived(item: Item, ctx: Context) -> Any:
    work: Outliving = ctx.resources
    if "token" in item.params:
        work.start(item, ctx)
        if item.params.get("saves"):
            ctx.lost.wait()
        return os.getpid()
    work.gate.set()
    work.thread.join()
    ctx.save("of the second")
    return [os.getpid(), work.heard]


@handler("beside")
def beside(item: Item, ctx: Context) -> Any:
    return [os.getpid(), ctx.resources]


@handler("a-pooled", resources=async_pool)
async def pooled_on_the_loop(item: Item, ctx: Context) -> Any:
    await asyncio.sleep(0)
    return ctx.resources.use()


@handler("a-plainly-pooled", resources=pool)
async def plainly_pooled_on_the_loop(item: Item, ctx: Context) -> Any:
    return ctx.resources.use()
