"""One node of a lease grab as it was published, without a guard: `grab_node.py NAME URL`.

It races over a real Redis. Each start of a pump is a line on stdout.
"""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

from blackboard.clock import SystemChance, SystemClock
from blackboard.rules.grab import PumpEnded, Times
from blackboard.worker.grab import LeaseGrab
from blackboard.worker.redis_bus import RedisBus

PARTITIONS = [f"{number:02}" for number in range(12)]
TIMES = Times(normal=2.0, maximum=6.0, shutdown=1.0, minimum=0.5, per_held=0.05)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(name: str, url: str) -> None:
    clock, tasks = SystemClock(), set[asyncio.Task[None]]()

    def start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    async def claim(partition: str) -> bool:
        say(f"starts {partition}")
        return True

    async def end(partition: str) -> None:
        grab.take(PumpEnded(partition))

    def release(partition: str) -> None:
        start(end(partition))

    bus = RedisBus(
        url,
        prefix="published",
        clock=clock,
        chance=SystemChance(),
        on_away=say,
        on_back=lambda: say("it is back"),
    )
    grab = LeaseGrab(
        node=name,
        bus=bus,
        clock=clock,
        times=TIMES,
        start=start,
        claim=claim,
        release=release,
        guard=lambda: None,
    )
    grab.rows_read(PARTITIONS, ())
    await grab.run()


asyncio.run(main(*sys.argv[1:]))
