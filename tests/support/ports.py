"""Ports for servers that cannot choose one themselves."""

import random
import socket

BELOW_THOSE_OF_CLIENTS = range(15_000, 30_000)
"""Where the kernel takes none for a client, or for a server that listens on any port."""


def free_port() -> int:
    """A port that nothing listens on, and that no other test gets by chance."""
    while True:
        port = random.SystemRandom().choice(BELOW_THOSE_OF_CLIENTS)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue  # taken
