"""Handlers with resources. What is done to them is written to the file named by RESOURCES."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from blackboard import Context, Item, handler


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
    if "RESOURCES_FAIL" in os.environ:
        raise OSError("no route")
    one = Pool()
    yield one
    if one.file is not None:
        one.file.close()
    note("closed")


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
