"""Pyncette on SQLite: an item that is due once, each in a run of a dynamic task."""

import asyncio
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyncette import Pyncette
from pyncette.sqlite import sqlite_repository

folder, items = Path(sys.argv[1]), int(sys.argv[2])
app = Pyncette(repository_factory=sqlite_repository, sqlite_database=str(folder / "pyncette.db"))
left = items


@app.dynamic_task()
async def nothing(_context):
    """Does nothing."""
    global left
    left -= 1
    if not left:
        running.shutdown()


async def main():
    global running
    async with app.create() as running:
        due = datetime.now(UTC) - timedelta(seconds=1)
        for number in range(items):
            await running.schedule_task(nothing, f"item-{number}", execute_at=due)
        begun = time.perf_counter()
        await running.run()
        sys.stdout.write(f"{time.perf_counter() - begun}\n")


asyncio.run(main())
