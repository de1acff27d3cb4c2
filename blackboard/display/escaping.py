"""What may not be printed as it is, escaped: control characters, lone surrogates, and what turns
text from right to left. Pure.

Ids, errors and what handlers say come from anybody: a text may not steer a terminal, nor look like
another one.
"""

import json
from collections.abc import Callable


def shown(text: str) -> str:
    """`text` on one line: control characters, lone surrogates and other characters that are not
    printable are written as escapes.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def one_line(text: str) -> str:
    return shown(" ".join(text.splitlines()))


def shown_lines(text: str) -> list[str]:
    """The lines of a text, each as `shown` writes it."""
    return [shown(line.expandtabs(4)) for line in text.rstrip("\n").split("\n")]


def shown_text(text: str) -> str:
    """`text` on as many lines as it has, otherwise as `shown` writes it."""
    return escaped(text.expandtabs(4), _escaped)


def shown_json(text: str) -> str:
    """JSON on any number of lines, with each character that is not printable as an escape of JSON:
    it means the same, and steers no terminal.
    """
    if text.isascii() and "\x7f" not in text:  # the one control character that JSON may have
        return text
    return escaped(text, lambda char: json.dumps(char)[1:-1])


def escaped(text: str, escape: Callable[[str], str]) -> str:
    """`text` with each character that is not printable, but for ends of lines, as `escape` writes
    it.
    """
    odd = {char for char in set(text) if not char.isprintable()} - {"\n"}
    return text.translate({ord(char): escape(char) for char in odd}) if odd else text


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()
