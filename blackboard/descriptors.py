"""Waits for a descriptor that another program has made non-blocking, as ssh does with the streams
that it shares with its caller. By `select`: the `poll` of macOS knows no devices, as terminals are.
"""

import select


def wait_for_data(descriptor: int) -> None:
    """Waits until there is something to read, or the end. Raises OSError."""
    select.select([descriptor], [], [])


def wait_for_room(descriptor: int) -> None:
    """Waits until something can be written. Raises OSError."""
    select.select([], [descriptor], [])
