"""A pump whose partitions are raced for; it notes what it does, as those of pump_jobs."""

import os
from time import monotonic

from blackboard import Context, Item, pump

STEP = 0.05
"""Seconds."""


def note(what: str, position: int, partition: Item, ctx: Context) -> None:
    line = f"{what} {position} {partition.id} {ctx.fence} {ctx.worker} {monotonic()}\n"
    notes = os.open("notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(notes, line.encode())
    finally:
        os.close(notes)


@pump("raced", partitions=6, lease="3s", drain="1s", balance="grab")
async def raced(partition: Item, ctx: Context) -> None:
    position = ctx.checkpoint or 0
    note("began", position, partition, ctx)
    while not ctx.stopping:
        position += 1
        await ctx.save(position)
        note("saved", position, partition, ctx)
        await ctx.stopping.wait(STEP)
