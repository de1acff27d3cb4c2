"""Masks secrets: a value that `${NAME}` in a run's params stands for is replaced by `${NAME}` in
all output of the run.

Covered are the value, its lines, and its forms in a URL, in base64 (anywhere in a longer text:
`user:token`), in HTML, in JSON and in Python's quotes, which may be within each other. Programs
differ in which characters they escape in a URL, in HTML or in JSON, and how: any of them may be.
Values of fewer than SHORTEST characters stay: they occur by chance. Not promised is any other form
that a handler makes of a value: reversed, in pieces, as a number or a hash, quoted for a URL twice
or for a shell.

Masking takes time in proportion to the text and to the values, and is limited to a part of a long
text, because it may happen on the loop. Text is masked before it is cut to fit a row: a value that
was cut in two would not be found.
"""

import html
import json
import re
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from html.entities import html5
from itertools import accumulate, chain
from string import ascii_letters, digits
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote, urlsplit

import msgspec

from blackboard.bus import REDIS_URL
from blackboard.handlers.context import variables
from blackboard.phrases import LONGEST_ERROR, LONGEST_OUTPUT, cut_front, cut_middle, left_out
from blackboard.tables.azure_address import CONNECTION_STRING

SHORTEST: Final = 6
"""Characters of the shortest value, or form of one, that is masked."""
MOST_MASKED: Final = 1 << 20
"""Characters of one text that are masked. The middle of a longer one is left out first."""
LONGEST_CHARACTER: Final = 4
"""Bytes of the longest character in UTF-8."""
_TRIES: Final = 1000
"""Places in a value that are tried as the beginning of a cut text. A value with more of them
repeats itself, and the first is taken."""
_LONGEST_ESCAPED: Final = 4_000
"""Characters of the longest value that is looked for with any of its characters escaped."""
_UNRESERVED = frozenset(ascii_letters + digits + "-._~")
"""Characters that no program escapes."""
_ESCAPING = re.compile(r"[%&+\\]")
_LETTERS = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
"""Characters that a backslash and this letter stand for."""
_BEFORE = r"\\{0,16}+(?:%5[Cc]){0,16}+"
"""Backslashes before a character, also as they are in a URL: JSON within JSON doubles them. None is
given back, for the search would else try each way to share them out; the limit keeps it short where
there are very many.
"""
_JSON_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_QUOTED = re.compile("%[0-9A-F]{2}")
_URL_SAFE = str.maketrans("+/", "-_")

_Span = tuple[int, int, str]
"""The start and end of a value in a text, and its name."""


class Mask:
    """`values`: the value of each name. Its repr, as in a traceback's locals, shows none of
    them.
    """

    def __init__(
        self, values: Mapping[str, str], *, others: Iterable[tuple[str, str]] = ()
    ) -> None:
        self.values = values
        self._all = dict.fromkeys((*others, *values.items()))
        """Pairs of a name and a value: the value of a name may have changed between two runs."""

    def joined(self, values: Mapping[str, str]) -> "Mask":
        """The mask with these values, too: this one, where it has them already."""
        return self if self._all.keys() >= values.items() else self.of_run(values)

    def of_run(self, values: Mapping[str, str]) -> "Mask":
        """The mask of a run with these values, and of all that is masked here."""
        return Mask(values, others=self._all)

    @cached_property
    def _forms(self) -> Sequence[tuple[str, str]]:
        """Every form and its name, the longest first; computed when the first text is masked."""
        forms = {form: name for name, value in self._all for form in _forms(value)}
        return sorted(forms.items(), key=lambda form: len(form[0]), reverse=True)

    def text(
        self, text: str, *, cut_start: bool = False, cut_end: bool = False, named: bool = True
    ) -> str:
        """The whole text, masked. Where it was cut, it may begin or end inside a value."""
        spans = self._spans(text)
        if cut_start:
            spans += self._within(text)
        if cut_end:
            size = len(text)
            spans += [(size - end, size, name) for _, end, name in self._within(text, back=True)]
        if not spans:
            return text
        parts, last = list[str](), 0
        for start, end, name in sorted(spans, key=lambda span: (span[0], -span[1])):
            if start >= last:
                parts += (text[last:start], f"${{{name}}}" if named else "***")
            last = max(last, end)
        return "".join((*parts, text[last:]))

    def short(self, text: str, limit: int = LONGEST_ERROR) -> str:
        """Masked, and cut in the middle to at most `limit` characters."""
        if len(text) <= MOST_MASKED:
            return cut_middle(self.text(text), limit)
        head = text[: MOST_MASKED // 3]
        tail = text[len(head) - MOST_MASKED :]
        gap = left_out(len(text) - MOST_MASKED)
        whole = self.text(head, cut_end=True) + gap + self.text(tail, cut_start=True)
        return cut_middle(whole, limit)

    def output(self, text: str) -> str:
        """The end of an output, which may begin inside a value: masked, and cut again. An output
        that is shorter than the limit is whole.
        """
        size = len(text.encode("utf-8", "backslashreplace"))
        is_cut = size > LONGEST_OUTPUT - LONGEST_CHARACTER  # it begins with a whole character
        return cut_front(self.text(text, cut_start=is_cut), LONGEST_OUTPUT)

    def result(self, encoded: bytes, limit: int) -> bytes:
        """JSON with its texts masked, keys too. If names make it longer than `limit` characters,
        three stars replace the values: they are never longer than a value.
        """
        if not self._all or not encoded:
            return encoded
        text = encoded.decode()
        strings = list(_JSON_STRING.finditer(text))
        texts = [_plain(string[0]) for string in strings]
        starts = list(accumulate((len(plain) + 1 for plain in texts), initial=0))
        # Joined by a character that no value can hold, and searched once.
        spans = self._spans("\0".join(texts))
        touched = {bisect_right(starts, start) - 1 for start, _, _ in spans}
        if not touched:
            return encoded
        masked = ""
        for named in (True, False):
            masked = self._rewritten(text, strings, touched, named=named)
            if len(masked) <= limit:
                break
        return masked.encode()

    def _rewritten(
        self, text: str, strings: Sequence[re.Match[str]], touched: set[int], *, named: bool
    ) -> str:
        parts, last = list[str](), 0
        for number in sorted(touched):
            string = strings[number]
            plain = self.text(_plain(string[0]), named=named)
            parts += (text[last : string.start()], msgspec.json.encode(plain).decode())
            last = string.end()
        return "".join((*parts, text[last:]))

    def _spans(self, text: str) -> list[_Span]:
        spans: list[_Span] = []
        for form, name in self._forms if text else ():
            at = text.find(form)
            while at >= 0:
                spans.append((at, at + len(form), name))
                at = text.find(form, at + len(form))
        if _ESCAPING.search(text):
            spans += [
                (match.start(), match.end(), name)
                for name, value in self._all
                for match in _escaped_in(text, value.strip())
            ]
        return spans

    def _within(self, text: str, *, back: bool = False) -> list[_Span]:
        """The values inside which a cut text begins; `back`: inside which it ends."""
        text = text[::-1] if back else text
        if len(text) < SHORTEST:
            return []
        sizes = [(_overlap(text, form[::-1] if back else form), name) for form, name in self._forms]
        return [(0, size, name) for size, name in sizes if size]


def _overlap(text: str, value: str) -> int:
    """How many first characters of `text` are the rest of `value`, or a part of it."""
    if text in value:
        return len(text)
    key, first, tries = text[:SHORTEST], 0, 0
    at = value.find(key, max(1, len(value) - len(text)))
    while at >= 0:
        first, tries = first or at, tries + 1
        if tries > _TRIES or text.startswith(value[at:]):
            return len(value) - (first if tries > _TRIES else at)
        at = value.find(key, at + 1)
    return 0


NOTHING: Final = Mask({})
"""The mask of a run without secrets."""

WEB_TOKEN: Final = "BLACKBOARD_WEB_TOKEN"  # noqa: S105 - the name of a variable
"""From which `blackboard serve` takes the token of its visitors."""
OWN: Final = (CONNECTION_STRING, REDIS_URL, WEB_TOKEN)
"""The environment variables with the scheduler's own secrets, which no handler needs: they open its
store, its bus and its pages.
"""


def mask_of_worker(environ: Mapping[str, str]) -> Mask:
    """The mask of runs without secrets of their own: of what is in the variables of `OWN`."""
    texts = [(name, environ[name]) for name in OWN if name in environ]
    return Mask({}, others=[(name, part) for name, text in texts for part in _parts(name, text)])


def _parts(name: str, text: str) -> Sequence[str]:
    """A token; or a connection string or a URL, and the keys, signatures and passwords in it, if it
    has any.
    """
    if name == WEB_TOKEN:
        return [text]
    secrets = re.findall(r"(?i:AccountKey|SharedAccessSignature)\s*=\s*([^;]+)", text)
    secrets += map(unquote, re.findall(r"\b(?:sig|password)=([^&;]+)", text))
    with suppress(ValueError):
        secrets += filter(None, [unquote(urlsplit(text).password or "")])
    return [text, *secrets] if secrets else []


def values_in(params: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """The values that params are expanded to from `environ`, by name."""
    return {name: environ[name] for name in variables(params) if name in environ}


def _plain(string: str) -> str:
    """The text of a JSON string."""
    return msgspec.json.decode(string, type=str) if "\\" in string else string[1:-1]


@lru_cache(maxsize=32)
def _forms(value: str) -> tuple[str, ...]:
    """All forms of a value. Cached for the next run: the environment rarely changes."""
    value = value.strip()
    raw = value.encode(errors="surrogateescape")
    lines = (line.strip() for line in value.splitlines())
    in_python = (repr(value)[1:-1], ascii(value)[1:-1], repr(raw)[2:-1])
    forms = chain((value, html.escape(value)), lines, in_python, _in_json(value))
    forms = chain(forms, _in_urls(raw), _in_base64(raw))
    return tuple({form: None for form in forms if len(form) >= SHORTEST})


def _escaped_in(text: str, value: str) -> Iterator[re.Match[str]]:
    """The places of a value in a URL, in HTML or in JSON, whichever of its characters are escaped.
    A text without all that is never escaped of the value is not searched, which takes longer.
    """
    escaped = _escaped(value) if all(part in text for part in _plain_parts(value)) else None
    return iter(()) if escaped is None else escaped.finditer(text)


@lru_cache(maxsize=32)
def _plain_parts(value: str) -> Collection[str]:
    """The parts of a value that no program escapes."""
    return set(re.findall(r"[A-Za-z0-9._~-]+", value))


@lru_cache(maxsize=32)
def _escaped(value: str) -> re.Pattern[str] | None:
    """Finds a value, whichever of its characters are escaped. None: it has none that a program
    escapes, or is too short or too long.
    """
    if not SHORTEST <= len(value) <= _LONGEST_ESCAPED or _UNRESERVED.issuperset(value):
        return None
    # Of the value, too, `\u005c` and `%5C` are backslashes: `_character` takes what looks like one.
    value = re.sub(r"(?:(?:\\|%5[cC])+(?:u005[cC])*)+", r"\\", value)
    start = r"(?<!\\)" if value[0] == "\\" else ""  # a run of them is tried once
    return re.compile(start + "".join(map(_character, value)))


@lru_cache(maxsize=256)
def _character(char: str) -> str:
    """The expression for a char, as it is or escaped. A backslash is any number of them."""
    if char in _UNRESERVED:
        return re.escape(char)
    raw = char.encode(errors="surrogateescape")
    units = char.encode("utf-16-be", "surrogatepass").hex()
    in_json = _quoted([f"u{units[at : at + 4]}" for at in range(0, len(units), 4)])
    forms = [
        "".join(f"%(?:{byte:02X}|{byte:02x})" for byte in raw),
        f"&#0*+{ord(char)};",
        f"&#[xX]0*+(?:{ord(char):x}|{ord(char):X});",
        *(f"&{name}" for name, text in html5.items() if text == char and name.endswith(";")),
    ]
    if char == "\\":
        forms.append(_character("%") + "5[cC]")
        return "(?:(?:" + "|".join((r"\\++", *forms)) + f")(?:{in_json})?+){{1,16}}+"
    if char == " ":
        forms.append(r"\+")
    in_python = f"U{ord(char):08x}" if ord(char) > 255 else f"x{ord(char):02x}"
    in_quotes = (in_json, _quoted([in_python]), _quoted([f"x{byte:02x}" for byte in raw]))
    after = "|".join((re.escape(char), *in_quotes, *_LETTERS.get(char, ""), *forms))
    return f"{_BEFORE}(?:{after})"


def _quoted(codes: Iterable[str]) -> str:
    """The expression for the codes of a character, after the backslash before the first."""
    return _BEFORE.join(f"{code[0]}(?:{code[1:]}|{code[1:].upper()})" for code in codes)


def _in_json(value: str) -> Iterator[str]:
    """As text of JSON, also with `/` escaped, and as text of JSON that is text in JSON."""
    for as_ascii in (True, False):
        once = json.dumps(value, ensure_ascii=as_ascii)[1:-1]
        yield once
        yield once.replace("/", "\\/")
        yield json.dumps(once, ensure_ascii=as_ascii)[1:-1]


def _in_urls(value: bytes) -> Iterator[str]:
    """Quoted, with hexadecimal digits in upper and in lower case."""
    for form in (quote(value), quote(value, safe=""), quote_plus(value)):
        yield form
        yield _QUOTED.sub(lambda code: code[0].lower(), form)


def _in_base64(value: bytes) -> Iterator[str]:
    """The value alone, and the part of its code that does not depend on the text around it."""
    yield b64encode(value).decode()
    for before in range(3):
        encoded = b64encode(bytes(before) + value).decode()
        inner = encoded[-(-before * 8 // 6) : (before + len(value)) * 8 // 6]
        yield inner
        yield inner.translate(_URL_SAFE)
