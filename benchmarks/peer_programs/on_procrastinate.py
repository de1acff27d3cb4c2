"""Procrastinate on PostgreSQL."""

import asyncio
import logging
import sys
import time

from procrastinate import App, PsycopgConnector

address, items = sys.argv[1], int(sys.argv[2])
app = App(connector=PsycopgConnector(conninfo=address))
logging.disable()


@app.task
async def nothing():
    """Does nothing."""


async def main():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await nothing.batch_defer_async(*({} for _ in range(items)))
        begun = time.perf_counter()
        await app.run_worker_async(wait=False, concurrency=100, install_signal_handlers=False)
        sys.stdout.write(f"{time.perf_counter() - begun}\n")


asyncio.run(main())
