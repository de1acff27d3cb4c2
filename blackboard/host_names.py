"""What an error of the system's resolver says of the name of a host."""

import socket


def is_unresolved_for_now(problem: object) -> bool:
    """Whether an error is that of a name that cannot be resolved now, as without a name server."""
    return isinstance(problem, socket.gaierror) and problem.errno == socket.EAI_AGAIN
