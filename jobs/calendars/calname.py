"""The name that a calendar gives itself, for feeds that the list gives none."""

import html
import re

_HEAD = 64 * 1024
_LONGEST = 100
_FOLD = re.compile(rb"\r?\n[ \t]")
_EVENT = re.compile(rb"^[ \t]*BEGIN:V(?:EVENT|TODO|JOURNAL)\b", re.IGNORECASE | re.MULTILINE)
_NAME = re.compile(
    rb"""^(?:X-WR-CALNAME|NAME)(?:;(?:[^":\r\n]|"[^"\r\n]*")*)?:([^\r\n]*)""",
    re.IGNORECASE | re.MULTILINE,
)
_TAG = re.compile(r"</?[a-zA-Z][^>]*>")
_ESCAPED = re.compile(r"\\(.)")


def calendar_name(body: bytes) -> str:
    """What X-WR-CALNAME, or NAME (RFC 7986), says before the first event; or ""."""
    head = _FOLD.sub(b"", body[:_HEAD].replace(b"\x00", b""))
    begin = _EVENT.search(head)
    found = _NAME.search(head[: begin.start()] if begin else head)
    if found is None:
        return ""
    text = _ESCAPED.sub(lambda one: " " if one[1] in "nN" else one[1], _decoded(found[1]))
    text = html.unescape(_TAG.sub(" ", text))
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_LONGEST]


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")


def apart(names: list[tuple[str, str]]) -> list[str]:
    """The names, each once: of those that share one, all but the first get their other name
    besides, or a number.
    """
    taken: set[str] = set()
    found = []
    for name, other in names:
        best = name
        if best in taken and other != name:
            best = f"{name} ({other})"
        number = 2
        plain = best
        while best in taken:
            best, number = f"{plain} ({number})", number + 1
        taken.add(best)
        found.append(best)
    return found
