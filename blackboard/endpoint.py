"""Where a process listens: a host and a port, as people write them; how many it may serve."""

import errno
import os
import resource
import socket
from contextlib import ExitStack
from typing import NamedTuple, Self

from blackboard.errors import BadInput
from blackboard.host_names import is_unresolved_for_now
from blackboard.inputs import number_of

DEFAULT_HOST = "127.0.0.1"
HIGHEST_PORT = 65_535
QUEUE = 128
"""Connections that wait to be accepted."""
TRIES = 10
"""Ports that are tried, where any will do."""
NOT_OF_THIS_HOST = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
"""Errors of an address that this host does not have."""


class Endpoint(NamedTuple):
    host: str
    port: int
    """0: any that is free."""

    @classmethod
    def parse(cls, text: str, field: str, *, processes: int = 1) -> Self:
        """Reads `PORT` or `HOST:PORT`, that of the first of some processes; the host may be an IPv6
        address in brackets. Raises BadInput.
        """
        before, _, port = text.rpartition(":")
        host, number = _host_of(before), number_of(port)
        last = (number or 0) + (processes - 1) * bool(number)
        if host is None or number is None or last > HIGHEST_PORT:
            ports = f" for {processes} processes" if processes > 1 else ""
            remedy = f"a port up to {HIGHEST_PORT}{ports}, HOST:PORT, or as [::1]:PORT"
            raise BadInput(field, f"{text!r} is not an address with a port", remedy)
        return cls(host or DEFAULT_HOST, number)

    def of(self, number: int) -> "Endpoint":
        """The endpoint of the process with this number, counted from 0."""
        return self._replace(port=self.port + number) if self.port else self

    @property
    def is_for_all(self) -> bool:
        """Whether it stands for all addresses of this host in IPv6, `::`, and so in IPv4, too."""
        return ":" in self.host and set(self.host) <= set("0:")

    def listeners(self, field: str) -> list[socket.socket]:
        """Sockets that listen there, all at one port: of a name, at each of its addresses that this
        host has. Raises BadInput where it has none, and where the port is taken.
        """
        left = 1 if self.port else TRIES
        while True:
            left -= 1
            try:
                return self._listen()
            except (OSError, UnicodeError) as problem:
                is_taken = getattr(problem, "errno", None) == errno.EADDRINUSE
                if not is_taken or not left:  # one that was chosen may be taken at other addresses
                    remedy = "another port, 0 for any that is free, or another host"
                    why = f"{self} cannot be used: {_why_not(problem)}"
                    raise BadInput(field, why, remedy) from None

    def _listen(self) -> list[socket.socket]:
        """Listens once. Raises OSError, and UnicodeError for what is no name of a host."""
        sockets, absent = list[socket.socket](), None
        is_for_both = self.is_for_all and socket.has_dualstack_ipv6()
        found = socket.getaddrinfo(*self, type=socket.SOCK_STREAM)
        with ExitStack() as opened:
            for family, (host, _, *scope) in dict.fromkeys((one[0], one[4]) for one in found):
                port = sockets[0].getsockname()[1] if sockets else self.port
                try:
                    listener = socket.create_server(
                        (host, port, *scope),
                        family=family,
                        backlog=QUEUE,
                        dualstack_ipv6=is_for_both,
                    )
                except OSError as problem:
                    if problem.errno not in NOT_OF_THIS_HOST:
                        raise
                    absent = problem
                else:
                    sockets.append(opened.enter_context(listener))
            if absent is not None and not sockets:
                raise absent
            opened.pop_all()
        return sockets

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def within_descriptors(most: int, *, share: int) -> int:
    """So many at the most, or one for each `share` files that the process may open."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if allowed == resource.RLIM_INFINITY else min(most, allowed // share)


def _why_not(problem: OSError | UnicodeError) -> str:
    if is_unresolved_for_now(problem):
        return "its name cannot be resolved now"
    if isinstance(problem, socket.gaierror | UnicodeError):
        return "there is no such host"
    return os.strerror(problem.errno or 0)


def _host_of(text: str) -> str | None:
    """The host that is written before a port, an IPv6 address without its brackets; None: what is
    written is neither that nor a name.
    """
    if not set(text) & set("[]:"):
        return text
    address = text[1:-1]
    try:
        socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    except (OSError, ValueError):
        return None
    return address if text == f"[{address}]" else None
