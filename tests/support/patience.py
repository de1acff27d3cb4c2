"""How long tests wait for a condition: longer, the slower the machine is while they run.

The speed of the machine is measured once, when a run of the tests begins, and passed to its
processes; and again before a test gives up.
"""

import os
import subprocess
import sys
import time

NAME = "SLOWNESS_OF_THIS_MACHINE"
"""The environment variable with the result of `measured`."""
WORK = "import asyncio, json, sqlite3, subprocess"
USUAL = 0.2
"""Seconds that a Python process with `WORK` takes on a quiet machine, at most."""
TIMES = 3


def measured() -> float:
    """How many times longer than usual a Python takes to start now; at least 1."""
    longest = 0.0
    for _ in range(TIMES):
        begun = time.monotonic()
        subprocess.run([sys.executable, "-c", WORK], check=True)
        longest = max(longest, time.monotonic() - begun)
    return max(1.0, longest / USUAL)


SLOWNESS = float(os.environ.get(NAME) or measured())
os.environ[NAME] = str(SLOWNESS)


def patience(seconds: float) -> float:
    """The seconds in which this machine does what a quiet one does in `seconds`."""
    return seconds * SLOWNESS


def is_over(begun: float, seconds: float) -> bool:
    """Whether so many seconds have passed since a monotonic moment, also if this machine has become
    slower since the tests began.
    """
    passed = time.monotonic() - begun
    return passed > seconds and passed > seconds * measured() / SLOWNESS


def is_within(took: float, seconds: float) -> bool:
    """Whether something took no longer than `seconds` on a quiet machine, by the speed of this one
    when the tests began, or now.
    """
    return took <= patience(seconds) or took <= seconds * measured()
