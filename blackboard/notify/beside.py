"""What telling and pinging share, because both go on beside a worker's work: its end cuts their
waiting short, and their trouble is told as events, of which a long outage makes few.
"""

import asyncio
import logging
import math
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from blackboard.clock import Clock
from blackboard.events import Events, Kind
from blackboard.notify.ways import NotSent, Way

TROUBLE_EVERY = 60.0
"""Seconds between two events of the same way: it is tried more often than anybody wants to read."""


class Ending(asyncio.Event):
    """Set when the worker ends."""

    async def cuts_short(self, waiting: Coroutine[Any, Any, object]) -> None:
        """Wait; but no longer than until the worker ends."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(waiting), loop.create_task(self.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingTrouble:
    """Tells what went wrong, once a minute for each way."""

    events: Events
    clock: Clock
    _told: dict[str, float] = field(default_factory=dict)

    def look(self, way: Way) -> None:
        """Whatever is missing is told when the worker starts, not when something is to be sent."""
        try:
            way.check()
        except NotSent as problem:
            self.tell(label_of(way), str(problem))
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is for the sending to fail
            self.tell(way.name, type(problem).__name__)

    def tell(self, what: str, problem: str) -> None:
        now = self.clock.monotonic()
        if now - self._told.get(what, -math.inf) >= TROUBLE_EVERY:
            self._told[what] = now
            self.events.emit(Kind.NOTIFY, f"{what}: {problem}", level=logging.WARNING)


def label_of(way: Way) -> str:
    """What events call a way: its name, and where it leads."""
    return f"{way.name} {way.where()}".rstrip()
