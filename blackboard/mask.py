"""What `${NAME}` stood for in a run's params is masked in all that the run says: `${NAME}` stands
there again, wherever the value was.

Known are the value, its lines, and how it looks in a URL, in base64 (wherever in a longer text:
`user:token`), in JSON and in Python's quotes. Values of fewer than SHORTEST characters stay: they
occur by chance. Not promised is anything that a handler makes of a value: turned round, in pieces,
as a number or a hash.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Final
from urllib.parse import quote, quote_plus

import msgspec

from blackboard.context import variables
from blackboard.model import Ended

SHORTEST: Final = 6
_JSON_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_URL_SAFE = str.maketrans("+/", "-_")


class Mask:
    """`said`: what each name stood for. Shows nothing of it, also not in a traceback's locals."""

    def __init__(self, said: Mapping[str, str]) -> None:
        forms = {form: f"${{{name}}}" for name, value in said.items() for form in _forms(value)}
        self._forms = sorted(forms.items(), key=lambda one: len(one[0]), reverse=True)

    def text(self, text: str) -> str:
        for form, name in self._forms:
            text = text.replace(form, name)
        return text

    def ended(self, ended: Ended) -> Ended:
        """How a run ended, as it may be told. Never raises."""
        if not self._forms:
            return ended
        return replace(
            ended,
            error=self.text(ended.error),
            output=self._beheaded(self.text(ended.output)),
            result=None if ended.result is None else self._result(ended.result),
        )

    def _beheaded(self, text: str) -> str:
        """Of much output the end is kept, which may begin inside a value."""
        for form, name in self._forms:
            for gone in range(1, len(form) - SHORTEST + 1):
                if text.startswith(form[gone:]):
                    return name + text[len(form) - gone :]
        return text

    def _result(self, result: Any) -> Any:
        """As text, which has no depth that could be too much for recursion."""

        def masked(string: re.Match[str]) -> str:
            return msgspec.json.encode(self.text(msgspec.json.decode(string[0]))).decode()

        encoded = msgspec.json.encode(result).decode()
        return msgspec.json.decode(_JSON_STRING.sub(masked, encoded))


NOTHING: Final = Mask({})
"""The mask of a run that was told nothing."""


def mask_of(params: Mapping[str, Any], environ: Mapping[str, str]) -> Mask:
    """The mask of a run whose params, as they were written, are expanded from `environ`."""
    return Mask({name: environ[name] for name in variables(params) if name in environ})


def _forms(value: str) -> Iterator[str]:
    value = value.strip()
    raw = value.encode(errors="surrogateescape")
    lines = (line.strip() for line in value.splitlines())
    quoted = (repr(value)[1:-1], json.dumps(value)[1:-1])
    in_url = (quote(raw), quote(raw, safe=""), quote_plus(raw))
    for form in chain((value,), lines, quoted, in_url, _in_base64(raw)):
        if len(form) >= SHORTEST:
            yield form


def _in_base64(value: bytes) -> Iterator[str]:
    """By itself, and what of it does not depend on what stands before and behind it."""
    yield b64encode(value).decode()
    for before in range(3):
        encoded = b64encode(bytes(before) + value).decode()
        inner = encoded[-(-before * 8 // 6) : (before + len(value)) * 8 // 6]
        yield inner
        yield inner.translate(_URL_SAFE)
