"""Handlers that write down when they begin and end, on a clock that nothing can set."""

import asyncio
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blackboard import Context, Item, handler

from ._marks import said


def write_down(item: Item, ctx: Context, what: str) -> None:
    """One line at the end of a file that all runs share: whole, whoever is killed meanwhile."""
    line = {
        "what": what,
        "id": item.id,
        "fence": ctx.fence,
        "worker": ctx.worker,
        "slot": ctx.due.isoformat(),
        "at": time.monotonic(),
    }
    file = os.open(Path(item.params["folder"], "log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{json.dumps(line)}\n".encode())
    finally:
        os.close(file)


@contextmanager
def written_down(item: Item, ctx: Context) -> Iterator[None]:
    write_down(item, ctx, "began")
    try:
        yield
    finally:
        write_down(item, ctx, "ended")


@handler("logged")
async def log_a_coroutine(item: Item, ctx: Context) -> object:
    with written_down(item, ctx):
        await asyncio.sleep(item.params["seconds"])
    return said(ctx)


@handler("logged-plain")
def log_a_child(item: Item, ctx: Context) -> object:
    with written_down(item, ctx):
        threading.Event().wait(item.params["seconds"])  # sleeping fails where clocks are set
    return said(ctx)
