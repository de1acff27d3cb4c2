"""A lock of the machine: a test that uses all of it waits for the tests that use some of it, and
they wait for it, though pytest runs them in several processes.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MACHINE = Path(__file__)
QUEUE = MACHINE.parent
"""Held by who waits for the machine: tests that come later do not overtake one that wants all of
it.
"""


@contextmanager
def the_machine(*, alone: bool) -> Iterator[None]:
    how = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    with _locked(QUEUE, fcntl.LOCK_EX) as queue, _locked(MACHINE, how):
        fcntl.flock(queue, fcntl.LOCK_UN)
        yield


@contextmanager
def _locked(path: Path, how: int) -> Iterator[int]:
    opened = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(opened, how)
        yield opened
    finally:
        os.close(opened)
