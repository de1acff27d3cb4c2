"""Where a process listens: a host and a port, as people write them; how many it may serve."""

import errno
import os
import resource
import socket
from typing import NamedTuple, Self

from blackboard.errors import BadInput
from blackboard.inputs import number_of

DEFAULT_HOST = "127.0.0.1"
HIGHEST_PORT = 65_535
QUEUE = 128
"""Connections that wait to be accepted."""


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

    def listener(self, field: str) -> socket.socket:
        """A socket that listens there; of a name, at its address of IPv4. Raises BadInput when the
        address cannot be used.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        is_for_both = self.is_for_all and socket.has_dualstack_ipv6()
        try:
            return socket.create_server(
                self, family=family, backlog=QUEUE, dualstack_ipv6=is_for_both
            )
        except (OSError, UnicodeError) as problem:  # UnicodeError: a name that no host can have
            raise self.unusable(field, problem) from None

    def unusable(self, field: str, problem: OSError | UnicodeError) -> BadInput:
        """Why a process cannot listen there. A UnicodeError is about a name that no host has."""
        why = "there is no such host"
        if isinstance(problem, OSError) and not isinstance(problem, socket.gaierror):
            # The text of asyncio has the address, too. For one that is not of this host asyncio has
            # no number, from Python 3.13 on.
            why = os.strerror(problem.errno or errno.EADDRNOTAVAIL)
        remedy = "another port, 0 for any that is free, or another host"
        return BadInput(field, f"{self} cannot be used: {why}", remedy)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def within_descriptors(most: int, *, share: int) -> int:
    """So many at the most, or one for each `share` files that the process may open."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if allowed == resource.RLIM_INFINITY else min(most, allowed // share)


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
