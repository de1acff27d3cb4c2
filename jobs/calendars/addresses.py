"""Addresses of feeds: what is meant by them, what may be shown of them, and what may be fetched.

**Shown.** The address of a private calendar is enough to read it, so it is a password. Left out are
a user and password, the values of names such as `key`, `hash` or `pass`, the tokens of Google,
iCloud, Outlook and others, and whatever looks like a token: long, with letters and digits mixed.
Public ids of Google calendars stay: they are not secret, and name a feed.

**Fetched.** Public addresses over http and https, and what the settings allow besides. Addresses
are checked after resolution, so the spelling of a host (decimal, octal, short, IPv6 that carries
IPv4) makes no difference. Refused are all that are not globally reachable, and some that Python's
tables call global: the metadata addresses of clouds, IPv6 prefixes that lead to any IPv4 address
through a gateway (NAT64, 6to4, Teredo), and IPv6 addresses that nobody was given yet.
"""

import ipaddress
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from blackboard import BadInput

_USER = re.compile(r"^([a-z][a-z0-9+.-]*://)[^/?#]*@", re.IGNORECASE)
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):", re.IGNORECASE)


def meant(address: str) -> str:
    """The address that is fetched: https in place of webcal:, which browsers use for calendars."""
    for scheme in ("webcal://", "webcals://"):
        if address.lower().startswith(scheme):
            return "https://" + address[len(scheme) :]
    return address


def plain_too(address: str) -> list[str]:
    """The same address over http, if it is one of webcal:, which may mean that; else nothing."""
    return ["http" + address[6:]] if address.lower().startswith("webcal://") else []


def scheme_of(address: str) -> str:
    """The scheme, in lower case; "" for a bare path."""
    scheme = _SCHEME.match(address)
    return scheme[1].lower() if scheme else ""


def file_path(address: str) -> Path | None:
    """The file that a file: address or a bare path means; None when it is on another host."""
    if scheme_of(address) != "file":
        return Path(address)
    parts = urlsplit(address)
    if parts.netloc.lower() not in {"", "localhost"}:
        return None
    return Path(unquote(parts.path))


def name_from(address: str) -> str:
    """A name for a feed that was given none: its file's, or its host's when that says nothing;
    "" when the address is malformed.
    """
    try:
        parts = urlsplit(_USER.sub(r"\1", address))
    except ValueError:
        return ""
    stem = unquote(parts.path.rstrip("/").rpartition("/")[2])
    for ending in (".ics", ".ical", ".ifb"):
        stem = stem[: -len(ending)] if stem.lower().endswith(ending) else stem
    says_nothing = {"", "basic", "calendar", "ical", "events", "feed", "index", "public"}
    hidden = stem not in unquote(redacted(address)) or has_token(stem)
    if stem.lower() in says_nothing or hidden:
        return parts.hostname or redacted(address)
    return stem


def same_place(address: str) -> str:
    """One text for all spellings of an address that ask for the same; "" when there is none."""
    try:
        parts = urlsplit(meant(address.strip()))
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return address
    usual = {"http": 80, "https": 443}[parts.scheme]
    user = parts.netloc.rpartition("@")[0]
    host = parts.hostname.rstrip(".")
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{user}@{host}:{port or usual}{parts.path or '/'}{query}"


_DOTS = "..."
_USERINFO = re.compile(r"^([a-z][a-z0-9+.-]*:)?(//)[^/?#]*@", re.IGNORECASE)
_NAMED = re.compile(
    "key|token|secret|sign|sig$|pass|pwd|^pw$|auth|credential|hash|session|^sid$|ticket|jwt|hmac"
    "|digest|nonce|private|^code$|access_?code|login|^share$|^pin$|uuid|guid|^[hkstup]$",
    re.IGNORECASE,
)
"""A parameter whose name is like this is secret, whatever its value looks like."""
_PARTS = re.compile(r"((?:[a-z][a-z0-9+.-]*:)?//[^/?#]*|)([^?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_GUID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)
_PIECE = re.compile(r"[A-Za-z0-9-]{8,}")
_WORD = re.compile(r"[^\s/?&=\"'<>()]{16,}")
_SHORTEST = 4
"""Characters of a secret that is looked for in a text: shorter ones are parts of words."""
_RUN = re.compile(r"[A-Za-z0-9+=~]{16,}")
_TOKEN_PATHS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?<=/private-)[^/?#]+",
        r"(?<=/published/)\d+/[^?#]+",
        r"(?<=/owa/calendar/)[^?#]+(?=/[^/?#]*(?:[?#]|$))",
        r"(?<=/public-calendars/)[^/?#]+",
        r"(?<=/feeds/calendars/)[^/?#]+?(?=\.ics|[/?#]|$)",
    )
)
"""Tokens in the paths of Google, iCloud, Outlook, Nextcloud and Canvas."""


def redacted(address: str) -> str:
    """The address as reports, logs and errors may show it."""
    return _cut(address, [])


def without(text: str, *addresses: str) -> str:
    """A text, such as a server's, without what these addresses keep secret."""
    secrets: list[str] = []
    for address in addresses:
        _cut(address, secrets)
    pieces = {piece for one in secrets for piece in (one, unquote(one), *_PIECE.findall(one))}
    for piece in sorted(pieces, key=len, reverse=True):
        if len(piece) >= _SHORTEST:
            text = text.replace(piece, _DOTS)
    return _WORD.sub(lambda word: _DOTS if has_token(word[0]) else word[0], text)


def has_token(text: str) -> bool:
    """Whether a piece of an address looks like a token and says nothing to people."""
    text = unquote(text)
    if _GUID.search(text):
        return True
    return any(_mixed(run) for run in _RUN.findall(text))


def _mixed(run: str) -> bool:
    digits = sum(one.isdigit() for one in run)
    letters = sum(one.isalpha() for one in run)
    turns = sum(a.isdigit() != b.isdigit() for a, b in itertools.pairwise(run))
    cases = sum(a.isupper() != b.isupper() for a, b in itertools.pairwise(run))
    return letters > 0 and ((digits >= 3 and turns >= 4) or (len(run) >= 20 and cases >= 8))


def _cut(address: str, secrets: list[str]) -> str:
    """The address without its secrets, which are put into the list."""

    def dots(token: re.Match[str]) -> str:
        secrets.append(token[0])
        return _DOTS

    user = _USERINFO.match(address)
    if user:
        secrets += re.split("[:@]", user[0].partition("//")[2])
        address = f"{user[1] or ''}//{_DOTS}@{address[user.end() :]}"
    parts = _PARTS.fullmatch(address)
    assert parts is not None, "every text has these parts"
    host, path, query = parts.groups()
    for pattern in _TOKEN_PATHS:
        path = pattern.sub(dots, path)
    if "/public/" not in path:
        path = re.sub(r"(?<=/)[^/]+", lambda one: _segment(one[0], secrets), path)
    return host + path + re.sub(r"[^&;?#]+", lambda one: _pair(one[0], secrets), query)


def _segment(segment: str, secrets: list[str]) -> str:
    stem, dot, ending = segment.rpartition(".")
    stem, ending = (stem, dot + ending) if stem and len(ending) <= 4 else (segment, "")
    if stem == _DOTS or not has_token(stem):
        return segment
    secrets.append(stem)
    return _DOTS + ending


def _pair(pair: str, secrets: list[str]) -> str:
    name, equals, value = pair.partition("=")
    if not equals:
        return _segment(pair, secrets)
    if not value or not (_NAMED.search(unquote(name)) or has_token(value)):
        return pair
    secrets.append(value)
    return f"{name}={_DOTS}"


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_FIELD = "jobs.calendars.allow"
_HOST = re.compile(r"[^\s/@.]{1,63}(?:\.[^\s/@.]{1,63})*\.?")
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
        ("3fff::/20", "a reserved address"),
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a private address"),
        ("ff00::/8", "a multicast address"),
    )
)
_UNICAST = ipaddress.ip_network("2000::/3")
"""The IPv6 addresses that are given out (RFC 4291, 2.4). Among the others, which Python's tables
mostly call global, are those that a translator turns into IPv4 (RFC 2765)."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The addresses that the settings allow besides public ones."""

    files: bool = False
    networks: tuple[tuple[Network, int | None], ...] = ()
    """A network, and the one port of it that is meant, if one is."""
    hosts: frozenset[tuple[str, int | None]] = frozenset()

    def refused(self, host: str, port: int, addresses: Iterable[Address]) -> Address | None:
        """The first of the host's addresses that is not allowed."""
        name = host.lower().rstrip(".")
        if {(name, None), (name, port)} & self.hosts:
            return None
        refused = (one for one in addresses if why_refused(one) and not self._allows(one, port))
        return next(refused, None)

    def _allows(self, address: Address, port: int) -> bool:
        plain = _plain(address)
        return any(
            plain in network and only in {None, port}
            for network, only in self.networks
            if network.version == plain.version
        )


def why_refused(address: Address) -> str:
    """Why an address is out of bounds unless it is allowed by name, or ""."""
    plain = _plain(address)
    for network, why in _REFUSED:
        if plain.version == network.version and plain in network:
            return why
    is_given_out = plain.version == 4 or plain in _UNICAST
    is_public = is_given_out and plain.is_global and not plain.is_multicast
    return "" if is_public else "not a public address"


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
        elif _HOST.fullmatch(host):
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
