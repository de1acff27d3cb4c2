"""What a handler returned or raised, put so that the row of its run can hold it."""

import math
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec

from blackboard.phrases import cut_middle

_OURS = (
    str(Path(__file__).parent),
    str(Path(__file__).parent.parent / "registry.py"),
    str(Path(__file__).parent.parent / "cli"),
    str(Path(traceback.__file__).parent / "asyncio"),
    "<frozen importlib",
    str(Path(traceback.__file__).parent / "importlib"),
)
"""Whose frames, where they come first, say nothing about a handler."""

_LONGEST: Final = 1 << 20
"""Characters of an error, far more than are kept of it: where this cuts, nobody sees half a
secret."""


class Unfit(Exception):
    """A handler returned what JSON cannot hold."""


def encode_result(value: Any) -> bytes:
    """What a handler returned, as JSON. Raises Unfit saying what type or number was in the way."""
    try:
        encoded = msgspec.json.encode(value)
        # Numbers that JSON lacks become null; most results hold none and are not gone through.
        odd = _not_finite(value) if b"null" in encoded else None
    except Exception as problem:  # noqa: BLE001 - cycles, depth and odd objects raise anything
        kind = type(value).__qualname__
        raise Unfit(f"the handler returned {kind}, which is not JSON: {problem}") from None
    if odd is not None:
        raise Unfit(f"the handler returned the number {odd}, which JSON cannot hold")
    return encoded


def _not_finite(value: Any) -> float | None:
    """An infinity or a NaN in what can be encoded, if it holds one."""
    left = [msgspec.to_builtins(value, enc_hook=msgspec.json.decode)]  # the hook is for raw JSON
    while left:
        match left.pop():
            case float() as number if not math.isfinite(number):
                return number
            case dict() as members:
                left += members.values()
            case list() | tuple() as members:
                left += members
    return None


def failure(problem: BaseException) -> str:
    """Type and message on the first line, then the traceback from the handler's own code on."""
    if isinstance(problem, Unfit):
        return readable(str(problem))
    first = f"{type(problem).__name__}: {_message(problem)}"
    lines = traceback.format_exception(
        type(problem), problem, _from_the_handler_on(problem.__traceback__)
    )
    return cut_middle(readable(f"{first}\n{''.join(lines)}".rstrip()), _LONGEST)


def readable(text: str) -> str:
    """`text` as UTF-8 can hold it: lone surrogates are spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _message(problem: BaseException) -> str:
    try:
        return str(problem)
    except Exception as second:  # noqa: BLE001 - a __str__ may raise anything
        return f"(its message raised {type(second).__qualname__})"


def _from_the_handler_on(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OURS):
        frames = frames.tb_next
    return frames
