"""Ports for servers that cannot choose one themselves, and the addresses of this machine."""

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

BELOW_THOSE_OF_CLIENTS = range(15_000, 30_000)
"""Ports that the kernel gives to no client, and to no server that listens on any port."""


def free_port() -> int:
    """A port that no process listens on, and that probably no other test uses."""
    while True:
        port = random.SystemRandom().choice(BELOW_THOSE_OF_CLIENTS)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue  # taken


def need_ipv6() -> None:
    """Skips a test where nothing can listen on ::1, as where IPv6 is disabled."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")


@contextmanager
def dropping(host: str, port: int) -> Iterator[None]:
    """An address that answers no attempt to connect: the queue of its socket is full."""
    with socket.create_server((host, port), backlog=0):
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect((host, port))
        try:
            yield
        finally:
            for one in waiting:
                one.close()
