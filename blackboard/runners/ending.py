"""What a handler returned or raised, put so that the row of its run can hold it: encoded, masked
and cut where the handler ran, so that no more than a row holds goes on from there.

A result is nested no deeper than params are: what JSON readers bear depends on how deep they are
called themselves, and one that could be written might not be read.
"""

import math
import re
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from blackboard.phrases import too_long
from blackboard.runners.secrets import LONGEST_LOOKED_AT, Mask
from blackboard.spec import DEEPEST
from blackboard.table import units

_OURS = (
    str(Path(__file__).parent),
    str(Path(__file__).parent.parent / "handlers.py"),
    str(Path(__file__).parent.parent / "cli"),
    str(Path(traceback.__file__).parent / "asyncio"),
    "<frozen importlib",
    str(Path(traceback.__file__).parent / "importlib"),
)
"""Whose frames, where they come first, say nothing about a handler."""

_BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]')


_NAME = vars(type)["__name__"]


class Unfit(Exception):
    """A handler returned what JSON cannot hold."""


def fitting_result(value: Any, mask: Mask, *, limit: int) -> bytes:
    """What a handler returned as JSON, masked, in at most `limit` characters as stores count them.
    Raises Unfit.
    """
    encoded = encode_result(value)
    if len(encoded) > LONGEST_LOOKED_AT:
        raise Unfit(f"the result is {len(encoded):,} bytes of JSON and {too_long(limit)}")
    try:
        encoded = mask.result(encoded, limit)
        msgspec.json.decode(encoded)
    except ValueError as problem:
        raise Unfit(f"the handler returned raw JSON that is none: {problem}") from None
    if len(encoded) > limit and (size := units(encoded.decode())) > limit:
        raise Unfit(f"the result is {size:,} characters of JSON and {too_long(limit)}")
    return encoded


def encode_result(value: Any) -> bytes:
    """What a handler returned, as JSON. Raises Unfit saying what type or number was in the way."""
    kind = type(value).__qualname__
    try:
        encoded = msgspec.json.encode(value)
        looked_at = len(encoded) <= LONGEST_LOOKED_AT
        # Numbers that JSON lacks become null; most results hold none and are not gone through.
        odd = _not_finite(value) if looked_at and b"null" in encoded else None
        deep = looked_at and is_too_deep(encoded.decode())
    except RecursionError:
        deep, odd = True, None
    except Exception as problem:  # noqa: BLE001 - odd objects raise anything
        raise Unfit(f"the handler returned {kind}, which is not JSON: {problem}") from None
    if deep:
        raise Unfit(
            f"the handler returned {kind}, which is not JSON that can be kept: it is nested deeper "
            f"than {DEEPEST} levels, or holds itself"
        )
    if odd is not None:
        raise Unfit(f"the handler returned the number {odd}, which JSON cannot hold")
    return encoded


def is_too_deep(encoded: str) -> bool:
    """Whether JSON has more than DEEPEST lists and objects within each other."""
    if encoded.count("[") + encoded.count("{") <= DEEPEST:
        return False
    depth = 0
    for found in _BRACKETS.finditer(encoded):
        match found[0]:
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
        if depth > DEEPEST:
            return True
    return False


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
    """Type and message on the first line, then the traceback from the handler's own code on. Never
    raises, whatever is wrong with the exception.
    """
    try:
        return _told(problem)
    except BaseException as second:  # noqa: BLE001 - what a handler raises may be of any class
        return f"{name_of(problem)}: (what it says raised {name_of(second)})"


def name_of(problem: BaseException) -> str:
    """The name of its class, which a metaclass could make raise. Never raises."""
    name: str = _NAME.__get__(type(problem))
    return readable(name)


def _told(problem: BaseException) -> str:
    if type(problem) is Unfit:
        return readable(str(problem))
    first = f"{name_of(problem)}: {_message(problem)}"
    try:
        lines = traceback.format_exception(
            type(problem), problem, _from_the_handler_on(problem.__traceback__)
        )
    except BaseException as second:  # noqa: BLE001 - what the exception holds may raise anything
        lines = [f"(its traceback raised {name_of(second)})"]
    return readable(f"{first}\n{''.join(lines)}".rstrip())


def readable(text: str) -> str:
    """`text` as UTF-8 can hold it: lone surrogates are spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _message(problem: BaseException) -> str:
    try:
        return str(problem)
    except BaseException as second:  # noqa: BLE001 - a __str__ may raise anything
        return f"(its message raised {name_of(second)})"


def _from_the_handler_on(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OURS):
        frames = frames.tb_next
    return frames
