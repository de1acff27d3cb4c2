"""Checks the arguments of the Python interface, before a verb does anything.

The annotations of a method say what it takes; what is of another kind is refused by name. A text of
a class of its own, such as a template engine's, is taken as the text that it is.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import wraps
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from blackboard.errors import BadInput

P = ParamSpec("P")
Answer = TypeVar("Answer")

_WORDS: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    timedelta: "a timedelta",
    datetime: "a datetime",
    Mapping: "a dict",
    Sequence: "a list",
}


def checked(method: Callable[P, Answer]) -> Callable[P, Answer]:
    """A method whose arguments are of the kinds that it says, or it raises BadInput naming one."""
    takes = {
        name: one.annotation
        for name, one in signature(method).parameters.items()
        if one.kind is not Parameter.VAR_KEYWORD and not isinstance(one.annotation, str)
    }
    bind = signature(method).bind

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> Answer:
        bound = bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if name in takes:
                bound.arguments[name] = argument(name, value, takes[name])
        return method(*bound.args, **bound.kwargs)

    return call


def argument(name: str, value: Any, kind: Any) -> Any:
    """A value that is of a kind. Raises BadInput naming it."""
    if kind is Parameter.empty:
        return value
    if not _fits(value, kind):
        raise BadInput(name, f"{repr(value)[:60]} is none", f"give {_words(kind)}")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadInput(name, f"{value[:60]!r} is not UTF-8 text", "use another") from None
        return str.__str__(value)
    return value


def _fits(value: Any, kind: Any) -> bool:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        return any(_fits(value, one) for one in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin is Sequence:
        is_one = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return is_one and all(_fits(one, parts[0]) for one in value)
    if origin is not None:
        return isinstance(value, origin)
    if kind in {int, float} and isinstance(value, bool):
        return False
    if kind is float:
        return isinstance(value, int | float)
    return kind is Any or isinstance(value, kind)


def _words(kind: Any) -> str:
    """What a kind is, for people: "text or a whole number"."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        words = [_words(one) for one in parts if one is not NoneType and one != Literal[""]]
        return " or ".join(dict.fromkeys(words))
    if origin is Literal:
        return ", ".join(map(str, filter(None, parts)))
    if origin is Sequence:
        return f"a list of {_words(parts[0])}"
    return _WORDS.get(origin or kind, getattr(kind, "__name__", str(kind)))
