"""Feeds that are files of this machine, where the settings allow them."""

import os
import stat
from pathlib import Path

from .fetched import Body, FetchFailed, Why

_PIECE = 256 * 1024


def read_file(path: Path, limit: int, folder: Path | None) -> Body:
    """A regular file's bytes: opening a pipe or a device would wait, or never end."""
    body = Body(folder)
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as source:
            if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
                raise FetchFailed("not a file", why=Why.REFUSED)
            while piece := source.read(_PIECE):
                if body.size + len(piece) > limit:
                    raise FetchFailed(too_large(limit))
                body.write(piece)
    except (FileNotFoundError, NotADirectoryError):
        raise FetchFailed("no such file", why=Why.GONE) from None
    except (OSError, ValueError) as problem:
        raise FetchFailed(f"cannot be read: {line_of(problem)}") from None
    return body


def too_large(limit: int) -> str:
    return f"larger than {limit / 1024 / 1024:g} MiB"


def line_of(problem: Exception) -> str:
    """One line about a failure. Never the address: it may carry what must not be shown."""
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return " ".join(str(problem).split())[:200] or type(problem).__name__
