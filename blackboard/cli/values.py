"""KEY=VALUE as people write it: `retries=3`, `feeds=@feeds.txt`, `window.days=90`.

A value that parses as JSON is that; any other is text. `@FILE` is the text of a file; text that
begins with an @ is written as JSON: `handle="@jon"`. A dot in the key goes into an object.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from blackboard.errors import BadInput
from blackboard.spec import check_params


def parse_pairs(pairs: Sequence[str], field: str = "set") -> list[tuple[list[str], Any]]:
    """Each KEY=VALUE as the path of its key and its value. Raises BadInput."""
    return [_parse(pair, field) for pair in pairs]


def parse_keys(texts: Sequence[str], field: str = "unset") -> list[list[str]]:
    """Each dotted key as a path. Raises BadInput."""
    return [_path(text, field) for text in texts]


def laid_over(
    params: Mapping[str, Any],
    pairs: Sequence[tuple[list[str], Any]],
    unset: Sequence[list[str]] = (),
) -> dict[str, Any]:
    """A copy of `params` without the keys of `unset` and with the values of `pairs`, in order.

    Raises BadInput when a key to be unset is not there, or leads through what is no object.
    """
    copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(params))
    for path in unset:
        inner = _object_at(copied, path, "unset", make=False)
        if path[-1] not in inner:
            raise BadInput("unset", f"there is no {'.'.join(path)!r} in the params")
        del inner[path[-1]]
    for path, value in pairs:
        _object_at(copied, path, "set", make=True)[path[-1]] = value
    return copied


def _parse(pair: str, field: str) -> tuple[list[str], Any]:
    key, equals, text = pair.partition("=")
    if not equals:
        raise BadInput(field, f"{pair!r} is not KEY=VALUE", f"as in --{field} days=90")
    path = _path(key, field)
    value = _read(text[1:], key) if text.startswith("@") else _value(text)
    check_params({key: value})
    return path, value


def _path(key: str, field: str) -> list[str]:
    path = key.split(".")
    if not all(path):
        raise BadInput(field, f"{key!r} is no key", "a name, or names with dots between them")
    return path


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    except RecursionError:
        raise BadInput("set", "it is nested too deeply") from None


def _read(name: str, key: str) -> str:
    try:
        return Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, RuntimeError) as problem:  # RuntimeError: nobody has that home
        why = getattr(problem, "strerror", None) or str(problem)
        raise BadInput(key, f"{name!r}: {why}", "@ is followed by a file") from None
    except UnicodeDecodeError:
        raise BadInput(key, f"{name!r} is not UTF-8 text") from None


def _object_at(
    params: dict[str, Any], path: Sequence[str], field: str, *, make: bool
) -> dict[str, Any]:
    for depth, part in enumerate(path[:-1], 1):
        inner = params.setdefault(part, {}) if make else params.get(part, {})
        if not isinstance(inner, dict):
            raise BadInput(field, f"{'.'.join(path[:depth])!r} is not an object")
        params = inner
    return params
