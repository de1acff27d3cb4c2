"""Handlers that last until they are let go, and ones that harm or hold up their process."""

import asyncio
import ctypes
import os
import re
import time

from blackboard import Context, Item, handler

from ._marks import begin, has, said


def is_patient(item: Item, ctx: Context) -> bool:
    """Whether this run, being one of those that wait for a word, has not had it."""
    return ctx.fence in item.params.get("patient", ()) and not has(item, f"go-{ctx.fence}")


@handler("waits")
async def wait_for_a_file(item: Item, ctx: Context) -> object:
    """For `seconds`, and then for the file `go-<fence>` if its fence is one of `patient`."""
    begin(item, ctx)
    await asyncio.sleep(item.params.get("seconds", 0))
    while is_patient(item, ctx):  # noqa: ASYNC110 - what is waited for is outside this process
        await asyncio.sleep(0.02)
    return said(ctx)


@handler("waits-fenced", fenced=True)
async def wait_as_a_fenced_type(item: Item, ctx: Context) -> object:
    return await wait_for_a_file(item, ctx)


@handler("waits-plain")
def wait_in_a_child(item: Item, ctx: Context) -> object:
    begin(item, ctx)
    time.sleep(item.params.get("seconds", 0))
    while is_patient(item, ctx):
        time.sleep(0.02)
    return said(ctx)


@handler("holds-up")
def hold_up_a_child(item: Item, ctx: Context) -> None:
    """Never lets another thread of its process run, or lets none run for long."""
    begin(item, ctx)
    match item.params["how"]:
        case "spin":
            while True:
                pass
        case "sleep":
            ctypes.PyDLL(None).sleep(600)
        case "regex":
            re.match(r"(a+)+$", "a" * 60 + "b")


@handler("holds-up-the-loop")
async def hold_up_the_loop(item: Item, ctx: Context) -> None:
    """One way after the other, run by run."""
    begin(item, ctx)
    ways = item.params["how"]
    match ways[ctx.fence % len(ways)]:
        case "sleep":
            time.sleep(600)  # noqa: ASYNC251 - that is the point
        case "regex":
            re.match(r"(a+)+$", "a" * 60 + "b")


@handler("dies")
def die(item: Item, ctx: Context) -> None:
    begin(item, ctx)
    match item.params["how"]:
        case "exit":
            os._exit(3)
        case "segfault":
            ctypes.string_at(0)
