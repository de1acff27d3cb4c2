"""PgQueuer on PostgreSQL: `default`, which takes 10 jobs at once, or `batches`, of 100."""

import asyncio
import logging
import sys
import time
from datetime import timedelta

import asyncpg
from pgqueuer.db import AsyncpgDriver
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

address, items, setting = sys.argv[1], int(sys.argv[2]), sys.argv[3]
logging.disable()


async def main():
    connection = await asyncpg.connect(address)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    manager = QueueManager(queries)

    @manager.entrypoint("nothing")
    async def nothing(_job):
        """Does nothing."""

    await queries.enqueue(["nothing"] * items, [None] * items, [0] * items)
    begun = time.perf_counter()
    await manager.run(
        dequeue_timeout=timedelta(seconds=1),
        batch_size=100 if setting == "batches" else 10,
        mode=QueueExecutionMode.drain,
    )
    sys.stdout.write(f"{time.perf_counter() - begun}\n")
    await connection.close()


asyncio.run(main())
