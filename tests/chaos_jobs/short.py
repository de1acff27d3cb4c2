"""Handlers that end by themselves, well or not, and say what they did."""

import asyncio
import sys
import time
from pathlib import Path

from blackboard import Context, Item, handler

from ._marks import begin, note, said

MET: set[Path] = set()
"""The folders in which all workers are at work."""


@handler("quick")
async def quick(item: Item, ctx: Context) -> object:
    note(item, ctx, "began")
    await asyncio.sleep(item.params.get("seconds", 0))
    return said(ctx)


@handler("together", timeout="5m")
async def together(item: Item, ctx: Context) -> object:
    """Ends once so many workers are at work: as many as have begun such a run."""
    note(item, ctx, "began")
    folder = Path(item.params["folder"])
    while folder not in MET:
        workers = {line.split()[3] for line in (folder / "notes").read_text().splitlines()[:-1]}
        if len(workers) >= item.params["workers"]:
            MET.add(folder)
        else:
            await asyncio.sleep(0.05)
    return said(ctx)


@handler("quick-plain")
def quick_plain(item: Item, ctx: Context) -> object:
    note(item, ctx, "began")
    time.sleep(item.params.get("seconds", 0))
    return said(ctx)


@handler("flaky", retries=3, backoff="200ms")
async def flaky(item: Item, ctx: Context) -> object:
    """Ends well at the third attempt."""
    note(item, ctx, "began")
    await asyncio.sleep(item.params.get("seconds", 0))
    if ctx.attempt < 3:
        raise RuntimeError(f"attempt {ctx.attempt}")
    return said(ctx)


@handler("raises")
async def raise_what_ends_tasks(item: Item, ctx: Context) -> None:
    begin(item, ctx)
    match item.params["what"]:
        case "cancelled":
            raise asyncio.CancelledError
        case "cancel":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(60)
        case "exit":
            sys.exit(3)
        case "interrupt":
            raise KeyboardInterrupt


@handler("exits")
def exit_in_a_child(item: Item, ctx: Context) -> None:
    sys.exit(3)


@handler("counts", retries=9, backoff="100ms")
async def count(item: Item, ctx: Context) -> object:
    """Does a number of steps, and saves each."""
    position = ctx.checkpoint or 0
    note(item, ctx, f"start:{position}")
    while position < item.params["steps"]:
        await asyncio.sleep(item.params["seconds"])
        note(item, ctx, f"did:{position}")
        position += 1
        await ctx.save(position)
        note(item, ctx, f"saved:{position}")
    return said(ctx)


@handler("counts-plain", retries=9, backoff="100ms")
def count_in_a_child(item: Item, ctx: Context) -> object:
    """The same in a child process."""
    position = ctx.checkpoint or 0
    note(item, ctx, f"start:{position}")
    while position < item.params["steps"]:
        time.sleep(item.params["seconds"])
        note(item, ctx, f"did:{position}")
        position += 1
        ctx.save(position)
        note(item, ctx, f"saved:{position}")
    return said(ctx)
