"""The clock and the random source, which are handed in wherever time or chance matters.

`datetime.now`, `time.*` and `random.*` occur in this file alone, so a whole worker can run under
the clock of a test or a simulation; and in `runners/guard.py` and `runners/leftovers.py`, which
work in processes of their own.
"""

import os
import random
import time
from datetime import UTC, datetime
from typing import Protocol

from blackboard.model import whole_milliseconds


class Clock(Protocol):
    """Wall time for what is due, monotonic seconds for what is stale, and a way to wait."""

    def now(self) -> datetime:
        """Wall time, aware, UTC, whole milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds on a scale that never goes back and ignores changes of the wall clock."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class Chance(Protocol):
    """The random source."""

    def fraction(self) -> float:
        """Uniform in [0, 1)."""
        ...

    def nonce(self) -> str:
        """32 hexadecimal digits, unique."""
        ...


class SystemClock:
    """The host's clocks. CLOCK_MONOTONIC is one scale for all processes of a boot."""

    def now(self) -> datetime:
        return whole_milliseconds(datetime.now(UTC))

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        import asyncio  # noqa: PLC0415 - not for a child process

        await asyncio.sleep(seconds)


def processor() -> float:
    """Seconds of processor time that all threads of this process have used."""
    return time.process_time()


_spread = random.Random()  # noqa: S311 - spreads retries, guards nothing
"""A generator of our own: handlers may seed that of the module, and draw from it."""
os.register_at_fork(after_in_child=_spread.seed)


class SystemChance:
    """The operating system's randomness for nonces, an ordinary generator to spread load."""

    def fraction(self) -> float:
        return _spread.random()

    def nonce(self) -> str:
        return os.urandom(16).hex()


class SeededChance:
    """The same draws for the same seed, for tests and simulations."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)  # noqa: S311 - it must be repeatable

    def fraction(self) -> float:
        return self._random.random()

    def nonce(self) -> str:
        return f"{self._random.getrandbits(128):032x}"
