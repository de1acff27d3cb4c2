"""Asks for the dead-man address after each walk that succeeded: whoever waits there hears when no
worker walks any more. A ping that fails is not repeated; the next walk's is another.
"""

import asyncio
from dataclasses import dataclass, field

from blackboard.clock import Clock
from blackboard.notify.beside import Ending, SendingTrouble, label_of
from blackboard.notify.ways import Address, NotSent

PING_EVERY = 10.0
"""Seconds between two pings at the least: who waits for them counts in minutes, and walks may come
by the second.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinger:
    """Pings until the worker ends."""

    dead_man: Address
    clock: Clock
    ending: Ending
    trouble: SendingTrouble
    _walked: asyncio.Event = field(default_factory=asyncio.Event)

    def walked(self) -> None:
        """Somebody may hear of it."""
        self._walked.set()

    async def run(self) -> None:
        """What was walked before the end is still told."""
        self.trouble.look(self.dead_man)
        while self._walked.is_set() or not self.ending.is_set():
            if not self._walked.is_set():
                await self.ending.cuts_short(self._walked.wait())
                continue
            self._walked.clear()
            try:
                await self.dead_man.ping()
            except NotSent as problem:
                self.trouble.tell(label_of(self.dead_man), str(problem))
            except Exception as problem:  # noqa: BLE001 - whatever it is, the worker goes on
                self.trouble.tell(self.dead_man.name, type(problem).__name__)
            await self.ending.cuts_short(self.clock.sleep(PING_EVERY))
