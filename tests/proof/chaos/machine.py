"""A lock of the machine: a test that uses all of it, and tests that use some of it, wait for each
other; also when pytest runs them in several processes.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def the_machine(folder: Path, *, alone: bool) -> Iterator[None]:
    """`folder` is the same one for all that use the machine."""
    with (folder / "machine.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
