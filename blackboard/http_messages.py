"""Parts of HTTP messages that several clients and servers of this package read."""

import re
from datetime import MAXYEAR, datetime
from email.utils import parsedate_to_datetime

_BEFORE_PATH = re.compile(rb"https?://([^/?#@]+)(?=[/?]|\Z)", re.IGNORECASE)


def date_of(text: str) -> datetime | None:
    """The time in a header; None when it cannot be read, has no zone, or is of the last year that a
    time may have: what is computed from it would be later.
    """
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo and moment.year < MAXYEAR else None


def retry_after(text: str, date: str) -> float:
    """The seconds that an answer asks to wait, by its `Retry-After`: that has them, or a time,
    which is read by the clock of its `Date`. 0 for anything else.
    """
    text = text.strip()
    if text.isascii() and text.isdecimal():
        return float(text)
    until, now = date_of(text), date_of(date)
    return max((until - now).total_seconds(), 0.0) if until and now else 0.0


def origin_form(target: bytes) -> tuple[bytes, bytes]:
    """A request's target without the `http://HOST` that it may begin with; and that host, which
    replaces the one of the `Host` header (RFC 9112, 3.2.2); b"" where it names none.
    """
    found = _BEFORE_PATH.match(target)
    if found is None:
        return target, b""
    path = target[found.end() :]
    return path if path.startswith(b"/") else b"/" + path, found[1]
