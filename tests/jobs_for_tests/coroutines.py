"""Handlers that run on the worker's loop."""

# ruff: noqa: T201 - printing is what is tested

import asyncio
import io
import logging
import sys
from typing import Any

from blackboard import Context, Item, handler

from .plain import ReportParams, answer, log_all


@handler("a-describe", cron="0 3 * * *", timezone="Europe/Berlin")
async def describe(item: Item, ctx: Context) -> Any:
    await asyncio.sleep(0)
    return {
        "id": item.id,
        "params": dict(item.params),
        "due": ctx.due,
        "fence": ctx.fence,
        "attempt": ctx.attempt,
        "worker": ctx.worker,
        "fenced": ctx.fenced,
        "settings": ctx.settings,
        "lost": bool(ctx.lost),
    }


@handler("a-return-odd")
async def return_what_json_cannot_hold(item: Item, ctx: Context) -> Any:
    return {"deep": [object()]}


@handler("a-speak")
async def speak(item: Item, ctx: Context) -> None:
    ctx.log.info("%s of %d", "one", 3)
    ctx.progress(1, 3)
    await asyncio.to_thread(ctx.log.warning, "from a thread")
    ctx.progress(3, 3)


@handler("a-warn")
async def warn_of_what_is_asked_for(item: Item, ctx: Context) -> Any:
    for text in item.params["texts"]:
        ctx.warn(text)
    await asyncio.to_thread(ctx.warn, "from a thread")
    return {"warnings": ["in the result"]}


@handler("a-answer", every="1h")
async def answer_as_asked_for(item: Item, ctx: Context) -> None:
    await asyncio.sleep(0)
    answer(item.params["kind"])


@handler("a-report", params=ReportParams)
async def report(item: Item, ctx: Context) -> Any:
    return [type(item.params).__name__, item.params.url, item.params.days]


@handler("a-log")
async def log_what_is_asked_for(item: Item, ctx: Context) -> Any:
    log_all(item, ctx)
    await asyncio.to_thread(logging.getLogger("feeds").error, "in a thread")


@handler("a-save")
async def save_what_is_asked_for(item: Item, ctx: Context) -> Any:
    await ctx.save(item.params["value"])
    return {"before": ctx.checkpoint}


@handler("a-forgets-await")
async def forget_to_await(item: Item, ctx: Context) -> None:
    ctx.save({"page": 7})
    ctx.lost.wait()
    await ctx.lost.wait(0.001)


@handler("a-makes-tasks-of-calls")
async def make_tasks_of_calls(item: Item, ctx: Context) -> None:
    if item.params["how"] == "in a group":
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.save(7))
            group.create_task(ctx.lost.wait(0.001))
        return
    tasks = [asyncio.create_task(ctx.save(7)), asyncio.create_task(ctx.lost.wait(0.001))]
    if item.params["how"] == "cancelled at once":
        for task in tasks:
            task.cancel()


@handler("a-time-left")
async def say_the_time_that_is_left(item: Item, ctx: Context) -> Any:
    return ctx.time_left()


@handler("a-print")
async def print_with_pauses(item: Item, ctx: Context) -> None:
    for n in range(3):
        print(f"{item.id} {n}")
        await asyncio.sleep(0)
    await asyncio.to_thread(print, f"{item.id} from a thread")
    print(f"{item.id} to stderr", file=sys.stderr)
    sys.stdout.writelines([f"{item.id} as lines\n"])
    sys.stdout.flush()


@handler("a-raise")
async def raise_what_is_asked_for(item: Item, ctx: Context) -> None:
    await asyncio.sleep(0)
    kinds: dict[str, BaseException] = {
        "value": ValueError("bad feed"),
        "exit": SystemExit(3),
        "good exit": SystemExit(),
        "good exit 0": SystemExit(0),
        "interrupt": KeyboardInterrupt(),
        "cancelled": asyncio.CancelledError(),
    }
    raise kinds[item.params["what"]]


@handler("a-wait-until-lost")
async def wait_until_lost(item: Item, ctx: Context) -> Any:
    before = bool(ctx.lost)
    short = await ctx.lost.wait(0.001)
    ctx.progress(0, 1)
    return [before, short, await ctx.lost.wait(), bool(ctx.lost), ctx.lost.reason]


@handler("a-never-ends")
async def never_end(item: Item, ctx: Context) -> None:
    print("waiting")
    ctx.progress(0, 1)
    await asyncio.sleep(600)


@handler("a-cleans-up")
async def clean_up_when_cancelled(item: Item, ctx: Context) -> str:
    ctx.progress(0, 1)
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        print("cleaned up")
    return "finished after all"


@handler("a-swallows")
async def swallow_cancellation(item: Item, ctx: Context) -> None:
    """Goes on until it is cancelled for the second time."""
    ctx.progress(0, 1)
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        await asyncio.sleep(600)


@handler("a-changes")
async def change_what_it_is_given(item: Item, ctx: Context) -> Any:
    before = str(ctx.settings), sys.stdout.closed
    settings: Any = ctx.settings
    settings["allow"].append("everything")
    settings["more"] = 1
    out: Any = sys.stdout
    for buffer in (out.buffer, out.detach()):
        with io.TextIOWrapper(buffer, encoding="utf-8") as wrapped:
            wrapped.write("wrapped anew\n")
    sys.stdout.close()
    sys.stderr.close()
    return before


@handler("a-cancels-itself")
async def cancel_itself(item: Item, ctx: Context) -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return "done all the same"
