"""Ports for servers that cannot choose one themselves."""

import random
import socket

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
