"""The data of a row as JSON text that a person can read, and back.

A time is written as a list of one text: data is flat, so nothing else is a list, and a text that
only looks like a time stays a text.
"""

from datetime import datetime
from typing import Any

import msgspec

from blackboard.table import Data, Value

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def encode(data: Data) -> str:
    """`data` has plain values and UTC times."""
    return _encode(_marked(data)).decode()


def decode(text: str) -> dict[str, Value]:
    """Raises ValueError for what was not written here."""
    data = _read(text)
    for name, value in data.items():
        if type(value) is list:
            data[name] = _time(value)
    return data


def merged(text: str, data: Data) -> str:
    """`data` laid over the row in `text`, whose own values stay unread. Raises as `decode`."""
    return _encode(_read(text) | _marked(data)).decode()


def _read(text: str) -> dict[str, Any]:
    try:
        return _decode(text)
    except (msgspec.MsgspecError, TypeError) as error:
        raise ValueError(str(error)) from None


def _time(marked: list[Any]) -> datetime:
    try:
        return datetime.fromisoformat(marked[0])
    except (IndexError, TypeError):
        raise ValueError(f"{marked} is no time") from None


def _marked(data: Data) -> dict[str, Any]:
    return {name: [value] if isinstance(value, datetime) else value for name, value in data.items()}
