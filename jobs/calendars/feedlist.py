"""Reads a list of feeds as people keep it in a text file.

One feed a line: an address, or a name and an address in either order, and `primary = true` after
them where its copy of an event is to be kept before those of others. A comment right above a
feed is its name, unless it is a note (`# cmd: ...`), a heading (`# --- Live feeds ---`) or an
address that somebody switched off. Blank lines and headings end a name's reach.
"""

import re
from dataclasses import dataclass

_ADDRESS = re.compile(r"(?:https?|webcals?|file|ftp)://\S+|file:/\S+", re.IGNORECASE)
_NOTE = re.compile(r"[a-z][a-z0-9_-]*\s*[:=]\s")
_RULE = re.compile(r"[-=*#_~]{3,}")
_PRIMARY = re.compile(r"[\s,;|]+primary\s*[=:]\s*(?:true|yes)\s*$", re.IGNORECASE)
_AROUND = " \t|,;=:\u2013\u2014\"'<>()"


@dataclass(frozen=True, slots=True)
class Listed:
    """A feed's address, and the name that the list gives it, or ""."""

    url: str
    name: str
    primary: bool = False


def read_feeds(text: str) -> list[Listed]:
    """The feeds of a list, in its order. A line that holds no address is taken for one: whether
    it is, fetching will tell.
    """
    feeds = []
    name = ""
    for raw in text.removeprefix("\ufeff").splitlines():
        line = raw.strip()
        if line.startswith(("#", "//")):
            name = _name_in(line.lstrip("#/").strip(), name)
        elif line:
            feeds.append(_feed(line, name))
            name = ""
        else:
            name = ""
    return feeds


def _name_in(comment: str, before: str) -> str:
    if not comment or _RULE.match(comment) or _RULE.search(comment[-3:]):
        return ""
    if _NOTE.match(comment) or _ADDRESS.search(comment):
        return before
    return comment


def _feed(line: str, above: str) -> Listed:
    line, marks = _PRIMARY.subn("", line)
    found = _ADDRESS.search(line)
    if found is None:
        return Listed(line, above, bool(marks))
    url = found[0].rstrip("\"'>,")
    before, after = line[: found.start()].strip(_AROUND), line[found.end() :].strip(_AROUND)
    return Listed(url, before or after or above, bool(marks))
