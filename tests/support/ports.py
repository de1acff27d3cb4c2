"""Ports for servers that cannot choose one themselves, and the addresses of this machine."""

import random
import socket

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
