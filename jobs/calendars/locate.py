"""Addresses of feeds as people write them: what is meant, and what may be shown of it."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

_SECRET = re.compile(
    r"([?&;](?:[^=&#;]*(?:key|token|secret|sig|signature|password|passwd|pwd|auth|credential)[^=&#;]*)=)[^&#;]+",
    re.IGNORECASE,
)
_PRIVATE = re.compile(r"(/private-)[^/?#]+", re.IGNORECASE)
_USER = re.compile(r"^([a-z][a-z0-9+.-]*://)[^/?#]*@", re.IGNORECASE)
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):", re.IGNORECASE)


def meant(address: str) -> str:
    """webcal: is how browsers hand a calendar to a program; it is fetched over https."""
    for scheme in ("webcal://", "webcals://"):
        if address.lower().startswith(scheme):
            return "https://" + address[len(scheme) :]
    return address


def scheme_of(address: str) -> str:
    """In lower case; "" for a bare path."""
    found = _SCHEME.match(address)
    return found[1].lower() if found else ""


def shown(address: str) -> str:
    """The address without its user, its password and what it keeps secret in query and path."""
    return _PRIVATE.sub(r"\1...", _SECRET.sub(r"\1...", _USER.sub(r"\1...@", address)))


def path_of(address: str) -> Path | None:
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
    if stem.lower() in {"", "basic", "calendar", "ical", "events", "feed", "index", "public"}:
        return parts.hostname or stem or shown(address)
    return stem
