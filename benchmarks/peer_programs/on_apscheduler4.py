"""APScheduler 4, an alpha, on PostgreSQL."""

import asyncio
import logging
import sys
import time

from apscheduler import AsyncScheduler, JobReleased
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore

address, items = sys.argv[1].replace("postgresql:", "postgresql+asyncpg:"), int(sys.argv[2])
logging.disable()
left = items


async def nothing():
    """Does nothing."""


async def main():
    ended = asyncio.Event()

    def count(_event):
        global left
        left -= 1
        if not left:
            ended.set()

    async with AsyncScheduler(SQLAlchemyDataStore(address)) as scheduler:
        await scheduler.configure_task(nothing, max_running_jobs=100)
        for _ in range(items):
            await scheduler.add_job(nothing)
        scheduler.subscribe(count, {JobReleased})
        begun = time.perf_counter()
        await scheduler.start_in_background()
        await ended.wait()
        sys.stdout.write(f"{time.perf_counter() - begun}\n")
        sys.stdout.flush()


asyncio.run(main())
