"""What a server says besides a feed's bytes: for how long they are good, when to come again, and
why there is no feed, in its own words.
"""

import html
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from .redact import without

SHARED = 300.0
"""Seconds for which a feed may be used by other cities when its server says nothing of it."""
_LONGEST_FRESH = 3600.0
LONGEST_WAIT = timedelta(days=1)
"""For no longer is a server left alone that asks for time."""
_WORDS = 160
_TITLE = re.compile(rb"<(title|h1)\b[^>]*>(.*?)</\1", re.IGNORECASE | re.DOTALL)
_UNSEEN = re.compile(rb"<(script|style|head)\b.*?</\1\s*>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_MESSAGE = re.compile(
    r'"(?:message|error|error_description|detail|title|reason)"\s*:\s*"((?:[^"\\]|\\.)+)"',
    re.IGNORECASE,
)
HEAD = 16 * 1024
"""Bytes of an answer in which words are looked for."""


def freshness(headers: Mapping[str, str]) -> float:
    """Seconds for which an answer may be used without asking again (RFC 9111, 4.2), an hour at
    the most. 0 where it must not be kept, or be checked each time.
    """
    control = headers.get("cache-control", "").lower()
    if re.search(r"\b(?:no-store|no-cache)\b", control):
        return 0.0
    age = _number(headers.get("age", "")) or 0.0
    stated = re.search(r'(?<![\w-])max-age\s*=\s*"?(\d{1,9})', control)
    if stated:
        fresh = float(stated[1]) - age
    elif "expires" in headers:
        ends, begins = _date(headers["expires"]), _date(headers.get("date", ""))
        fresh = (ends - begins).total_seconds() - age if ends and begins else 0.0
    else:
        fresh = SHARED - age
    return min(max(fresh, 0.0), _LONGEST_FRESH)


def retry_after(value: str, now: datetime) -> datetime | None:
    """When a server wants to be asked again: seconds or a date, a day ahead at the most."""
    seconds = _number(value)
    when = now + timedelta(seconds=min(seconds, 1e6)) if seconds is not None else _date(value)
    return None if when is None or when <= now else min(when, now + LONGEST_WAIT)


def words_of(body: bytes, *addresses: str) -> str:
    """What people read in an answer that is no feed: one short line, with nothing in it that one
    of the addresses on the way to it keeps secret.
    """
    body = body[:HEAD]
    title = _TITLE.search(body)
    text = (title[2] if title else _UNSEEN.sub(b" ", body)).decode("utf-8", "replace")
    message = None if title else _MESSAGE.search(text)
    words = html.unescape(_TAG.sub(" ", message[1] if message else text))
    line = " ".join("".join(one if one.isprintable() else " " for one in words).split())
    line = without(line, *addresses)
    return line if len(line) <= _WORDS else line[: _WORDS - 3] + "..."


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text) if text.isdecimal() and len(text) < 12 else None


def _date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
