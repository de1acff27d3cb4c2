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


def need_address(host: str) -> None:
    """Skips a test where nothing can listen on an address, as on 127.0.0.2 with macOS."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, 0), family=family).close()
    except OSError:
        pytest.skip(f"this machine has no {host}")


def need_ipv6() -> None:
    """Skips a test where nothing can listen on ::1, as where IPv6 is disabled."""
    need_address("::1")


@contextmanager
def dropping(host: str, port: int) -> Iterator[None]:
    """An address that answers no attempt to connect: the queue of its socket is full. Skips a test
    where nothing can listen on it.
    """
    need_address(host)
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
