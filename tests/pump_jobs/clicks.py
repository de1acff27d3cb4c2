"""Pumps that note what they do in the worker's folder, a line for each: what, position, partition,
fence, worker, moment (monotonic).
"""

import os
from time import monotonic

from blackboard import Context, Item, pump

PARTITIONS = int(os.environ.get("CLICKS_PARTITIONS", "16"))
STEP = PARTITIONS / 320
"""Seconds from one save of a partition to the next: so many a second, however many partitions."""


def note(what: str, position: int, partition: Item, ctx: Context) -> None:
    line = f"{what} {position} {partition.id} {ctx.fence} {ctx.worker} {monotonic()}\n"
    notes = os.open("notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(notes, line.encode())
    finally:
        os.close(notes)


@pump("clicks", partitions=PARTITIONS, lease="3s", drain="2s")
async def clicks(partition: Item, ctx: Context) -> None:
    position = ctx.checkpoint or 0
    note("began", position, partition, ctx)
    while not ctx.stopping:
        position += 1
        await ctx.save(position)
        note("saved", position, partition, ctx)
        await ctx.stopping.wait(STEP)


@pump("plain", partitions=4, lease="3s", drain="2s")
def plain(partition: Item, ctx: Context) -> None:
    position = ctx.checkpoint or 0
    note("began", position, partition, ctx)
    while not ctx.stopping:
        position += 1
        ctx.save(position)
        note("saved", position, partition, ctx)
        ctx.stopping.wait(STEP)
