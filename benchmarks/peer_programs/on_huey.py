"""Huey on SQLite: `default`, or `durable`, which flushes each commit."""

import logging
import sys
import threading
import time
from pathlib import Path

from huey import SqliteHuey
from huey.signals import SIGNAL_COMPLETE

folder, items, setting = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
huey = SqliteHuey(filename=str(folder / "huey.db"), fsync=setting == "durable")
logging.disable()
done = threading.Semaphore(0)


@huey.task()
def nothing():
    """Does nothing."""


@huey.signal(SIGNAL_COMPLETE)
def count(_signal, _task):
    done.release()


for _ in range(items):
    nothing()
consumer = huey.create_consumer(workers=8, periodic=False, backoff=1.0, initial_delay=0.01)
begun = time.perf_counter()
consumer.start()
for _ in range(items):
    done.acquire()
sys.stdout.write(f"{time.perf_counter() - begun}\n")
sys.stdout.flush()
consumer.stop(graceful=True)
