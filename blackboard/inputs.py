"""Checks the input of callers before anything is done: of an item, and the arguments of a call.

The command line and the Python interface check the same fields of an item, and refuse with the same
words. The annotations of a method of the Python interface say what it takes (`checked`); an
argument of another kind is refused by its name. A text or a number of a class of its own, such as a
template engine's, is taken as a plain one.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import wraps
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin
from unicodedata import is_normalized, normalize

import msgspec

from blackboard.errors import BadInput, NoTimeLeft
from blackboard.patterns import is_label, state_in
from blackboard.phrases import quoted, stamp
from blackboard.rules.next_run import MILLISECOND, is_in_time, slot_of
from blackboard.rules.status import STATES
from blackboard.schedule.schedule import Every, Once, Schedule, next_due, opens
from blackboard.schedule.times import parse_moment
from blackboard.spec import (
    RunSettings,
    Spec,
    check_first,
    check_params,
    check_spec,
    check_value,
    encode_spec,
    plain,
)
from blackboard.table import units

SCHEDULE = ("every", "cron", "rrule", "at")
LONGEST_TEXT = 1_000
"""The most characters of an id, a reason, or the name of a person or program that acts."""
LARGEST_PARAMS = 1 << 20
"""Bytes of JSON that params must stay below, in any store."""


def check_id(text: str, field: str = "id") -> str:
    """Refuses an id that is empty or too long, or that cannot be written as UTF-8."""
    if not text:
        raise BadInput(field, "it is empty", "give the item a name")
    return check_text(field, text)


def check_new_id(text: str, field: str = "id") -> str:
    """Refuses what `check_id` and `check_looks` do, and an id that commands read as a pattern of
    many ids. (? and [ are in addresses, and match little else.)
    """
    check_looks(field, check_id(text, field))
    if "*" in text or is_label(text) or state_in(text):
        problem = f"{text!r} would mean other items in commands"
        raise BadInput(field, problem, "leave out *, or tag:, owner:, type:, state: before it")
    return text


def check_looks(field: str, text: str) -> str:
    """Refuses a name that is shown as another one is: with blanks at its ends, or with characters
    that Unicode writes in two ways, in another form than NFC. Raises BadInput naming its field.
    """
    if text != text.strip():
        raise BadInput(field, f"{text!r} has blanks at its ends", "leave them out")
    if not is_normalized("NFC", text):
        looks = f"{text!r} looks like another one"
        problem = f"{looks}: its characters are not in Unicode's form NFC"
        raise BadInput(field, problem, f"{normalize('NFC', text)!a} is")
    return text


def check_state(text: str) -> str:
    """Refuses what is none of the states of an item."""
    if text not in STATES:
        remedy = f"one of {', '.join(STATES)}"
        if any(character in text for character in "*?["):
            remedy = f"it is no glob: name each state that is meant, {remedy}"
        raise BadInput("state", f"there is no state {quoted(text)}", remedy)
    return text


def check_whole(field: str, number: int) -> int:
    """Refuses a number that no row can hold, and that may have no text. Raises BadInput."""
    if not -(2**63) <= number < 2**63:
        raise BadInput(field, "the number is far out of range")
    return number


def check_text(field: str, text: str) -> str:
    """Refuses a text that is too long for a name or a reason, or that cannot be written as UTF-8.
    Raises BadInput naming its field.
    """
    if len(text) > LONGEST_TEXT:
        raise BadInput(field, f"it has {len(text):,} characters", f"{LONGEST_TEXT:,} at the most")
    check_utf8(field, text)
    return text


def check_utf8(field: str, text: str, remedy: str = "use another") -> None:
    """Refuses a text, or a path, that cannot be written as UTF-8. Raises BadInput."""
    try:
        text.encode()
    except UnicodeEncodeError:
        if sys.getfilesystemencoding() != "utf-8":  # arguments are read by it
            remedy = "set the locale to one with UTF-8: LC_ALL=C.UTF-8"
        raise BadInput(field, f"{text[:200]!r} is not UTF-8 text", remedy) from None


def check_keys(text: str | bytes, field: str) -> None:
    """Refuses JSON in which an object has a key twice, of which a decoder takes the last."""

    def check(pairs: Sequence[tuple[str, Any]]) -> None:
        for key, times in Counter(key for key, _ in pairs).items():
            if times > 1:
                raise BadInput(field, f"the key {key[:60]!r} is there twice", "name it once")

    json.loads(text, object_pairs_hook=check, parse_int=str, parse_float=str)


def check_names(names: Iterable[str], taken: Collection[str], *, of: str, where: str = "") -> None:
    """Raises BadInput for a name that the handlers of the type `of` do not take. `where` is what
    stands before names, such as "params.".
    """
    for name in names:
        if name not in taken:
            raise BadInput(
                f"{where}{name}", f"means nothing to {of}", f"it takes {', '.join(taken)}"
            )


def number_of(text: str, *, digits: int = 9) -> int | None:
    """The number that a text of at most `digits` decimal digits means; None: it is none."""
    is_number = text.isascii() and text.isdigit() and len(text) <= digits
    return int(text) if is_number else None


def changed(spec: Spec, changes: Mapping[str, Any], *, params: Mapping[str, Any]) -> Spec:
    """`spec` with other fields and params, checked. "" takes a field back, and no other, so that
    the default of the type counts. A schedule takes the place of any other. Raises BadInput naming
    the field.
    """
    fields = {name: None if value == "" else value for name, value in changes.items()}
    if any(fields.get(name) is not None for name in SCHEDULE):
        fields = dict.fromkeys(SCHEDULE) | fields
    if (tags := fields.get("tags")) is not None:
        fields["tags"] = list(dict.fromkeys(tags))
    check_params(params)
    after = msgspec.structs.replace(spec, **fields, params=plain(params))
    check_spec(after)
    check_params_size(after.params)
    return after


def check_size(spec: Spec, *, limit: int) -> None:
    """Refuses a spec that no row of the store can hold, before anything is sent. `limit` is the
    store's `max_value`.
    """
    check_params_size(spec.params)
    if (size := units(encode_spec(spec))) > limit:
        longest = max(spec.__struct_fields__, key=lambda name: len(str(getattr(spec, name))))
        if longest == "params":
            raise _too_large(f"{size:,} characters", f"{limit:,}")
        problem = f"it is the longest of options that have {size:,} characters together"
        raise BadInput(longest, problem, f"{limit:,} at the most")


def checkpoint_text(value: Any, *, limit: int) -> str:
    """A checkpoint as its row holds it, "" for None. Raises BadInput for one that JSON cannot hold,
    or that has more than `limit` characters of JSON.
    """
    if value is None:
        return ""
    check_value(value, "checkpoint", may_be_null=True)
    text = msgspec.json.encode(plain(value)).decode()
    if (size := units(text)) > limit:
        too_much = f"it is {size:,} characters of JSON"
        raise BadInput("checkpoint", too_much, f"at most {limit:,} can be kept")
    return text


def check_params_size(params: Mapping[str, Any], *, limit: int = LARGEST_PARAMS) -> None:
    """Refuses params of a MiB or more, or longer than `limit` characters."""
    text = msgspec.json.encode(params)
    if len(text) >= LARGEST_PARAMS:
        raise _too_large(f"{len(text):,} bytes", f"less than {LARGEST_PARAMS:,}")
    if (size := units(text.decode())) > limit:
        raise _too_large(f"{size:,} characters", f"{limit:,}")


def _too_large(size: str, limit: str) -> BadInput:
    problem = f"they are {size} of JSON and a row holds {limit}"
    return BadInput("params", problem, "put them in a file and give its path")


def checked_first(text: str | None, settings: RunSettings) -> str | None:
    """When a new item is due first, or what its type says of it. Raises BadInput."""
    text = settings.first if text is None else text
    check_first(text, settings.timezone)
    if text == "next" and settings.schedule is None:
        problem = "there is no schedule whose next time could be waited for"
        if not settings.has_handler:
            problem += "; the handler of its type, which may have one, is not known here"
        raise BadInput("first", problem, "now, or a time")
    return text


def first_of(text: str | None, settings: RunSettings, now: datetime) -> datetime | None:
    """When a new item is due first: "now", "next" by its schedule, a time, or a duration from now.
    None given: as its type says; None if that says nothing either, and then the schedule decides
    (`rules.next_run.first_slot`). Raises BadInput; NoTimeLeft where the schedule has no next time.
    """
    text = checked_first(text, settings)
    schedule = settings.schedule
    if isinstance(schedule, Once) and not is_in_time(schedule, slot_of(schedule)):
        raise NoTimeLeft("until", "it leaves no next time", "change it")
    match text:
        case None:
            if schedule is not None and not _has_first_slot(schedule, now):
                raise _without_slots(schedule)
            return None
        case "next":
            assert schedule is not None
            following = next_due(schedule, now)
            if following is None:
                raise NoTimeLeft("first", "the schedule has no next time", "now, or a time")
            return following
        case _:
            first = parse_moment(text, settings.timezone, "first", now)
            if schedule is not None and not is_in_time(schedule, first):
                problem = f"{stamp(first)} is after the end of the schedule"
                raise NoTimeLeft("first", problem, "an earlier time, or a later until")
            return first


def _has_first_slot(schedule: Schedule, now: datetime) -> bool:
    """Whether a new item has a slot by its schedule. An `every` is due at once, an `at` also when
    its time has passed.
    """
    if isinstance(schedule, Every):
        begins = opens(schedule, now)
        return begins is not None and is_in_time(schedule, begins)
    after = slot_of(schedule) - MILLISECOND if isinstance(schedule, Once) else now
    return next_due(schedule, after) is not None


def _without_slots(schedule: Schedule) -> NoTimeLeft:
    """Says that a schedule has no slot for a new item, and which field leaves none."""
    limits = schedule.limits
    field = "blackout" if limits.windows else "until" if limits.until else "schedule"
    subject = "there is" if field == "schedule" else "it leaves"
    remedy = "" if field == "until" else ", or say when it runs first: first"
    return NoTimeLeft(field, f"{subject} no next time", f"change it{remedy}")


# ---- the arguments of a call

P = ParamSpec("P")
Answer = TypeVar("Answer")

_WORDS: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    timedelta: "a timedelta",
    datetime: "a datetime",
    date: "a date",
    Callable: "a function",
    Mapping: "a dict",
    Sequence: "a list",
    Iterable: "a list",
    os.PathLike: "a path",
}


def checked(method: Callable[P, Answer]) -> Callable[P, Answer]:
    """Makes a method check its arguments by its annotations. It raises BadInput naming the argument
    that is of another kind.
    """
    takes = {
        name: parameter.annotation
        for name, parameter in signature(method).parameters.items()
        if parameter.kind is not Parameter.VAR_KEYWORD and not isinstance(parameter.annotation, str)
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
    """The value, if it is of this kind. Raises BadInput naming it."""
    if kind is Parameter.empty:
        return value
    if not _fits(value, kind):
        raise BadInput(name, f"{quoted(value)} is not {_words(kind)}")
    if isinstance(value, str):
        check_utf8(name, value)
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__int__(value)
    member = _member_of(kind)
    if member is not None and isinstance(value, Sequence):
        return [argument(name, each, member) for each in value]
    return value


def _member_of(kind: Any) -> Any:
    """The kind of the members of a list; None: the kind is no list."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        return next(filter(None, map(_member_of, parts)), None)
    return parts[0] if origin is Sequence else None


def _fits(value: Any, kind: Any) -> bool:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin is Sequence:
        is_one = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return is_one and all(_fits(member, parts[0]) for member in value)
    if origin is not None:
        return isinstance(value, origin)
    if kind in {int, float} and isinstance(value, bool):
        return False
    if kind is float:
        return isinstance(value, int | float)
    return kind is Any or isinstance(value, kind)


def _words(kind: Any) -> str:
    """The words for a kind, for people: "text or a whole number"."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        words = [_words(part) for part in parts if part is not NoneType and part != Literal[""]]
        return " or ".join(dict.fromkeys(words))
    if origin is Literal:
        return f"one of {', '.join(map(str, filter(None, parts)))}"
    if origin is Sequence:
        return f"a list of {_words(parts[0])}"
    return _WORDS.get(origin or kind, getattr(kind, "__name__", str(kind)))
