"""Opens and reads files that a person has named: settings, items, a crontab, the value of a param;
and regular files, where others may have put something else in their place.

What such a name means may be no regular file. A named pipe and a socket are refused: to read one
would wait until a program writes into it. A pipe that a shell has opened is read: `/dev/stdin`, and
`/dev/fd/63`, as shells write `<(...)`. A device may have no end: `read_bytes` has a limit, and the
caller of `opened_file` needs one.
"""

import errno
import os
import select
import stat
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO

from blackboard.errors import BadInput

LARGEST_FILE = 64 << 20
"""The most bytes of a file of settings or items, or of a crontab."""
_AT_ONCE = 1 << 20
"""The most bytes of a read."""
_MOST_LINKS = 40
"""The most links that are followed, as by Linux."""


def read_text(file: Path | None, *, field: str) -> str:
    """The UTF-8 text of a file, or of the standard input if it is None. Raises BadInput with this
    `field` as `read_bytes` does, and where it is no such text.
    """
    try:
        return read_bytes(file, field=field).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(field, f"{file or 'it'} is not UTF-8 text", "give it as UTF-8") from None


def read_bytes(file: Path | None, *, field: str) -> bytes:
    """The content of a file, or of the standard input if it is None. Raises BadInput with this
    `field` where it cannot be read, and where it is longer than `LARGEST_FILE`.
    """
    name = file or "the standard input"
    try:
        with opened_file(file) if file else nullcontext(sys.stdin.buffer) as stream:
            data = _read(stream)
    except OSError as error:
        raise BadInput(field, f"{name}: {error.strerror}", "name a file that can be read") from None
    if len(data) > LARGEST_FILE:
        raise BadInput(field, f"{name} has more than {LARGEST_FILE:,} bytes", "divide it")
    return data


def _read(stream: BinaryIO) -> bytes:
    """All of a stream, or more than `LARGEST_FILE` bytes of it. Waits for a pipe that another
    program has made non-blocking, as ssh does with what it shares with its caller.
    """
    raw, data = getattr(stream, "raw", stream), bytearray()
    while len(data) <= LARGEST_FILE:
        part = raw.read(_AT_ONCE)
        if part is None:
            select.select([raw.fileno()], [], [])  # the `poll` of macOS knows no terminals
        elif part:
            data += part
        else:
            break
    return bytes(data)


def opened_file(file: Path) -> BinaryIO:
    """A file, open to be read. Raises OSError, also for a folder, a named pipe and a socket."""
    if file.is_socket():
        raise OSError(errno.ENXIO, "it is a socket")
    number = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.set_blocking(number, True)
        _check_kind(file, os.fstat(number).st_mode)
    except OSError:
        os.close(number)
        raise
    return os.fdopen(number, "rb")


class NotAFile(OSError):
    """Something else than a regular file has its name."""


def regular_file(path: Path) -> BinaryIO:
    """A regular file, open to be read. Raises NotAFile, and OSError where it cannot be opened."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise NotAFile(0, "not a file", str(path))
    return os.fdopen(number, "rb")


def bytes_of(path: Path) -> bytes:
    """All bytes of a regular file. Raises as `regular_file`."""
    with regular_file(path) as file:
        return file.read()


def can_be_read_again(file: Path) -> bool:
    """Whether other processes that open it read the same: not a pipe or a device, nor what a shell
    has opened, which to another process is something else, or has been read to its end.
    """
    return file.is_file() and not _is_of_shell(file)


def _check_kind(file: Path, mode: int) -> None:
    """Raises OSError for a folder, and for a pipe that has a name in a folder."""
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISFIFO(mode) and not _is_of_shell(file) and os.path.lexists(file.resolve()):
        raise OSError(errno.ENXIO, "it is a named pipe")


def _is_of_shell(file: Path) -> bool:
    """Whether it names a descriptor of this process, if need be by links. Raises OSError."""
    for _ in range(_MOST_LINKS):
        file = file.parent.resolve() / file.name
        if str(file).startswith(("/dev/fd/", "/dev/std", "/proc/")):
            return True
        if not file.is_symlink():
            return False
        file = file.parent / file.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
