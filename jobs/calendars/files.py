"""Opens files that others may have put where they are: opening a pipe would wait, and a device
never ends.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO


class NotAFile(OSError):
    """Something else than a regular file has its name."""


def opened(path: Path) -> BinaryIO:
    """A regular file, to be read. Raises NotAFile, and OSError where it cannot be opened."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotAFile(0, "not a file", str(path))
    return os.fdopen(descriptor, "rb")


def bytes_of(path: Path) -> bytes:
    """All bytes of a regular file. Raises what `opened` raises."""
    with opened(path) as file:
        return file.read()
