"""Programs of the system that make trouble: where they are, or why a test cannot do without.

Where CI is set, a test that cannot run fails: one that is always skipped would never be noticed.
"""

import os
import shutil
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


def _do_without(name: str, package: str) -> NoReturn:
    reason = f"{name} is missing; on Debian or Ubuntu: apt-get install {package}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
