"""Programs of the system that inject faults: their paths, or why a test is skipped without them.

Where CI is set, a test that cannot run fails: one that is always skipped would never be noticed.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

_LIBRARIES = Path("/usr/lib")


def program(name: str, *, package: str) -> str:
    """The path of a program."""
    return shutil.which(name) or _do_without(name, package)


def libfaketime() -> Path:
    """What is loaded into a process so that another wall clock is shown to it."""
    places = ("*/faketime/libfaketime.so.1", "faketime/libfaketime.so.1")
    found = [path for place in places for path in _LIBRARIES.glob(place)]
    return found[0] if found else _do_without("libfaketime", "faketime")


@contextmanager
def hogs(number: int, *, seconds: float) -> Iterator[None]:
    """Processes that compute all the time. Each has a session of its own, because some kernels give
    a session as a whole what one worker gets. They end by themselves after so many seconds.
    """
    stress = program("stress-ng", package="stress-ng")
    command = [stress, "--cpu", "1", "--timeout", f"{seconds:.0f}s", "--quiet"]
    started = [subprocess.Popen(command, start_new_session=True) for _ in range(number)]
    try:
        yield
        assert [one.poll() for one in started] == [None] * number
    finally:
        for one in started:
            one.send_signal(signal.SIGTERM)
        for one in started:
            one.wait()


def _do_without(name: str, package: str) -> NoReturn:
    reason = f"{name} is missing; on Debian or Ubuntu: apt-get install {package}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
