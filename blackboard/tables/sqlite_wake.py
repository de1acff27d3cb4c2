"""Wakes the workers of this host when a board in a file of SQLite was changed.

A worker listens on a datagram socket beside the file, FILE-wake-PID-NONCE: the nonce is for
containers, in which many workers have the same PID. A process that changes the board sends a byte
to each socket. Nothing depends on it: a worker that cannot be reached finds the change in its next
walk. A socket on which no process listens any more is removed by the next sender.
"""

import asyncio
import glob
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_INFIX = "-wake-"
_LONGEST = 100
"""Bytes of the path of a socket; most systems take 103."""
_READ_AT_ONCE = 1_000
"""Bytes that one wake reads, at most: those of several senders wake once."""


def wake_listeners(file: Path) -> None:
    """Wakes all workers that listen."""
    with suppress(OSError), _socket() as sender:  # too many files may be open
        for path in file.parent.glob(f"{glob.escape(file.name)}{_INFIX}*"):
            try:
                with _address(path) as address:
                    sender.sendto(b"!", address)
            except ConnectionRefusedError:  # its worker was killed, or it is no socket
                with suppress(OSError):
                    if path.is_socket():
                        path.unlink()
            except OSError:
                continue  # its queue is full, so it wakes anyway; or it is another user's


@contextmanager
def listening(file: Path, callback: Callable[[], None]) -> Iterator[None]:
    """Calls `callback` on the running loop when the file's workers are woken. Where there can be no
    socket, it is never called.
    """
    loop = asyncio.get_running_loop()
    path = file.with_name(f"{file.name}{_INFIX}{os.getpid()}-{os.urandom(4).hex()}")
    try:
        receiver = _bound(path, mode=file.stat().st_mode & 0o666)
    except OSError:
        yield
        return
    with receiver:

        def on_readable() -> None:
            with suppress(BlockingIOError):
                for _ in range(_READ_AT_ONCE):
                    receiver.recv(1)
            callback()

        loop.add_reader(receiver, on_readable)
        try:
            yield
        finally:
            loop.remove_reader(receiver)
            with suppress(OSError):
                path.unlink()


def _bound(path: Path, *, mode: int) -> socket.socket:
    """A socket that listens at a path."""
    made = _socket()
    try:
        with _address(path) as address:
            made.bind(address)
        path.chmod(mode)
    except BaseException:
        made.close()
        raise
    return made


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """The path in a form that a socket takes: a long one goes through its open folder."""
    if len(os.fsencode(path)) <= _LONGEST:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
