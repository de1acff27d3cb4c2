"""Places for the readers of feeds, shared by all runs of one user on a host.

Several cities may be aggregated at a time, each in a process of its own, and the memory of their
readers is to be bounded together. So a reader lives only while its run holds a place: a lock on
one of a few files in the folder of temporary files, which are deleted when they are not used. The
kernel frees the lock of a run that dies, and its readers die with it.

Where these files cannot be used (the folder cannot be written, or another user has made them) each
run has its places for itself.
"""

import asyncio
import fcntl
import os
from pathlib import Path

_PAUSE = 0.05


class Places:
    """`number` places, kept in a folder. Without a folder they are this run's own."""

    def __init__(self, number: int, folder: Path | None = None) -> None:
        self._number = number
        self._folder = folder
        self._mine = asyncio.Semaphore(number)
        self._paths: dict[int, Path] = {}

    async def take(self) -> int:
        """Waits for a place; the answer is what `free` wants."""
        await self._mine.acquire()
        if self._folder is None:
            return -1
        try:
            while True:
                for one in range(self._number):
                    held = _locked(_file(self._folder, one))
                    if held is not None:
                        self._paths[held] = _file(self._folder, one)
                        return held
                await asyncio.sleep(_PAUSE)
        except OSError:
            return -1
        except BaseException:
            self._mine.release()
            raise

    def free(self, held: int) -> None:
        if held >= 0:
            self._paths.pop(held).unlink(missing_ok=True)
            os.close(held)
        self._mine.release()


def _file(folder: Path, number: int) -> Path:
    return folder / f"blackboard-calendars-{os.getuid()}-reader-{number}.lock"


def _locked(path: Path) -> int | None:
    """The file, locked; None when another holds it. Raises OSError when it cannot be used."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.lstat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)  # locked by another, or deleted by the one that had it
    return None
