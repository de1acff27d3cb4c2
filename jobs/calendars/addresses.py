"""What may be fetched: public addresses over http and https, and what the settings allow besides.

Addresses are judged after resolution, so the spelling of a host (decimal, octal, short, IPv6 that
carries IPv4) makes no difference. Refused are all that are not globally reachable, and some that
Python's tables call global: the metadata addresses of clouds, and IPv6 prefixes that lead to any
IPv4 address through a gateway (NAT64, 6to4, Teredo).
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from blackboard import BadInput

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_FIELD = "jobs.calendars.allow"
_REFUSED: tuple[tuple[Network, str], ...] = tuple(
    (ipaddress.ip_network(network), why)
    for network, why in (
        ("0.0.0.0/8", "an unspecified address"),
        ("127.0.0.0/8", "a loopback address"),
        ("169.254.0.0/16", "a link-local address"),
        ("10.0.0.0/8", "a private address"),
        ("172.16.0.0/12", "a private address"),
        ("192.168.0.0/16", "a private address"),
        ("100.64.0.0/10", "an address inside a provider's network"),
        ("168.63.129.16/32", "a cloud's own address"),
        ("192.0.0.0/24", "a reserved address"),
        ("192.88.99.0/24", "a gateway of the past"),
        ("224.0.0.0/4", "a multicast address"),
        ("240.0.0.0/4", "a reserved address"),
        ("::/128", "an unspecified address"),
        ("::1/128", "a loopback address"),
        ("::/96", "an IPv6 address that carries an IPv4 one"),
        ("64:ff9b::/96", "a gateway to IPv4 addresses"),
        ("64:ff9b:1::/48", "a gateway to IPv4 addresses"),
        ("2001::/32", "a gateway to IPv4 addresses"),
        ("2002::/16", "a gateway to IPv4 addresses"),
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a private address"),
        ("ff00::/8", "a multicast address"),
    )
)


@dataclass(frozen=True, slots=True)
class Policy:
    """What the settings allow besides public addresses."""

    files: bool = False
    networks: tuple[tuple[Network, int | None], ...] = ()
    """A network, and the one port of it that is meant, if one is."""
    hosts: frozenset[tuple[str, int | None]] = frozenset()

    def refusal(self, host: str, port: int, addresses: Iterable[Address]) -> str:
        """Why not to connect, or "" when every one of the host's addresses is allowed."""
        name = host.lower().rstrip(".")
        if {(name, None), (name, port)} & self.hosts:
            return ""
        for address in addresses:
            why = refused(address)
            if why and not self._allows(address, port):
                return f"{address} is {why}"
        return ""

    def _allows(self, address: Address, port: int) -> bool:
        plain = _plain(address)
        return any(
            plain in network and only in {None, port}
            for network, only in self.networks
            if network.version == plain.version
        )


def refused(address: Address) -> str:
    """Why an address is out of bounds unless it is allowed by name, or ""."""
    plain = _plain(address)
    for network, why in _REFUSED:
        if plain.version == network.version and plain in network:
            return why
    return "" if plain.is_global and not plain.is_multicast else "not a public address"


def _plain(address: Address) -> Address:
    """::ffff:127.0.0.1 is 127.0.0.1 written otherwise, and a connection to it goes there."""
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped


def policy(allow: Any) -> Policy:
    """The setting `allow`: a list of addresses, networks, hosts, host:port, or "file".

    Raises BadInput naming the entry that is none of these.
    """
    entries = [allow] if isinstance(allow, str) else allow
    if not isinstance(entries, list | tuple):
        raise BadInput(_FIELD, "is not a list", 'such as ["127.0.0.1", "file"]')
    networks: list[tuple[Network, int | None]] = []
    hosts: set[tuple[str, int | None]] = set()
    files = False
    for entry in entries:
        if not isinstance(entry, str) or not entry.strip():
            raise BadInput(_FIELD, f"{entry!r} is not an address, a network, a host or file")
        text = entry.strip().lower()
        if text in {"file", "file:"}:
            files = True
            continue
        host, port = _split_port(text)
        network = _network(host)
        if network is not None:
            networks.append((network, port))
        elif _host_like(host):
            hosts.add((host.rstrip("."), port))
        else:
            raise BadInput(_FIELD, f"{entry!r} is not an address, a network, a host or file")
    return Policy(files=files, networks=tuple(networks), hosts=frozenset(hosts))


def _split_port(text: str) -> tuple[str, int | None]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    else:
        return text, None
    if port and not (port.isdecimal() and 0 < int(port) < 65_536):
        raise BadInput(_FIELD, f"{text!r} has no port number after its host")
    return host, int(port) if port else None


def _network(host: str) -> Network | None:
    try:
        return ipaddress.ip_network(host, strict=False)
    except ValueError:
        return None


def _host_like(host: str) -> bool:
    return (
        bool(host)
        and "/" not in host
        and "@" not in host
        and all(label and len(label) < 64 for label in host.rstrip(".").split("."))
        and not any(character.isspace() for character in host)
    )
