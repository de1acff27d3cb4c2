"""How long tests wait for what has to happen: longer, the slower the machine is while they run.

How slow it is is measured once, when a run of the tests begins, and handed to its processes; and
again before a test gives up.
"""

import os
import subprocess
import sys
import time

NAME = "SLOWNESS_OF_THIS_MACHINE"
"""In the environment: what was measured."""
WORK = "import asyncio, json, sqlite3, subprocess"
USUAL = 0.2
"""Seconds that a Python with this work takes on a quiet machine, generously."""
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
    """What a quiet machine does in so many seconds this one does in those."""
    return seconds * SLOWNESS


def is_over(begun: float, seconds: float) -> bool:
    """Whether so many seconds have passed since a moment (monotonic), and would have on a machine
    that is as slow as this one has become.
    """
    passed = time.monotonic() - begun
    return passed > seconds and passed > seconds * measured() / SLOWNESS


def is_within(took: float, seconds: float) -> bool:
    """Whether something took no longer than that on a machine that is as slow as this one was when
    the tests began, or has become.
    """
    return took <= patience(seconds) or took <= seconds * measured()
