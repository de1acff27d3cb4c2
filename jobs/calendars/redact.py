"""Addresses of feeds without what they keep secret.

Whoever has a private calendar's address can read it, so the address is a password. Left out are a
user and password, what stands behind names such as `key`, `hash` or `pass`, what stands where
Google, iCloud, Outlook and others put their tokens, and whatever looks like a token: long, with
letters and digits mixed. Public ids of Google calendars stay: they are no secret, and name a feed.
"""

import itertools
import re
from urllib.parse import unquote

_DOTS = "..."
_USER = re.compile(r"^([a-z][a-z0-9+.-]*:)?(//)[^/?#]*@", re.IGNORECASE)
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
"""Google, iCloud, Outlook, Nextcloud, Canvas."""


def shown(address: str) -> str:
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

    def dots(found: re.Match[str]) -> str:
        secrets.append(found[0])
        return _DOTS

    user = _USER.match(address)
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
