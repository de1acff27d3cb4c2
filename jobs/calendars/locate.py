"""Addresses of feeds as people write them: what is meant by them. See `redact.py` for what may
be shown of them.
"""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .redact import has_token, shown

_USER = re.compile(r"^([a-z][a-z0-9+.-]*://)[^/?#]*@", re.IGNORECASE)
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):", re.IGNORECASE)


def meant(address: str) -> str:
    """webcal: is how browsers hand a calendar to a program; it is fetched over https."""
    for scheme in ("webcal://", "webcals://"):
        if address.lower().startswith(scheme):
            return "https://" + address[len(scheme) :]
    return address


def plain_too(address: str) -> list[str]:
    """The address over http, if it is one of webcal: and may mean that."""
    return ["http" + address[6:]] if address.lower().startswith("webcal://") else []


def scheme_of(address: str) -> str:
    """In lower case; "" for a bare path."""
    found = _SCHEME.match(address)
    return found[1].lower() if found else ""


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
    says_nothing = {"", "basic", "calendar", "ical", "events", "feed", "index", "public"}
    hidden = stem not in unquote(shown(address)) or has_token(stem)
    if stem.lower() in says_nothing or hidden:
        return parts.hostname or shown(address)
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
