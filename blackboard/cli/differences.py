"""What is different between two specs, field by field. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from blackboard.cli.text import shown
from blackboard.protocol.rows import text_of
from blackboard.spec import Spec, decode_spec, encode_spec

LONGEST_SHOWN = 60
"""Characters of a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One field that changes; None is a value that is not there, and is called unset."""

    field: str
    old: Any
    new: Any

    @property
    def words(self) -> str:
        """As in "every: 8h -> 4h"."""
        return f"{shown(self.field)}: {_told(self.old)} -> {_told(self.new)}"


def differences(old: Spec, new: Spec) -> list[Difference]:
    """In the order of the fields. Specs that rows could not tell apart have none."""
    left, right = _plain(old), _plain(new)
    fields = [*Spec.__struct_fields__]
    return [one for name in fields for one in _between(name, left.get(name), right.get(name))]


def _plain(spec: Spec) -> dict[str, Any]:
    """As it will come out of a row."""
    plain: dict[str, Any] = msgspec.to_builtins(decode_spec(encode_spec(spec)))
    return plain


def _between(field: str, old: Any, new: Any) -> Iterator[Difference]:
    if text_of(old) == text_of(new):
        return
    if field == "params" or (isinstance(old, Mapping) and isinstance(new, Mapping)):
        left, right = old or {}, new or {}
        for key in [*left, *(key for key in right if key not in left)]:
            yield from _between(f"{field}.{key}", left.get(key), right.get(key))
    else:
        yield Difference(field=field, old=old, new=new)


def _told(value: Any) -> str:
    if value is None:
        return "unset"
    text = shown(value) if isinstance(value, str) else text_of(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
