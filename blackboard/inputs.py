"""Checks what is written about an item, before anything is sent to the store.

The command line and the Python interface check the same and refuse with the same words.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from blackboard.errors import BadInput
from blackboard.model import whole_milliseconds
from blackboard.schedule.schedule import Once, make_schedule, next_due
from blackboard.spec import RunSettings, Spec, check_params, check_spec, encode_spec
from blackboard.table import units

SCHEDULE = ("every", "cron", "rrule", "at")
LARGEST_PARAMS = 1 << 20
"""Bytes of JSON, in any store."""


def check_id(text: str) -> str:
    """Refuse an id that is empty, or that cannot be written as UTF-8."""
    if not text:
        raise BadInput("id", "it is empty", "give the item a name")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput("id", f"{text!r} is not UTF-8 text", "use another name") from None
    return text


def changed(spec: Spec, changes: Mapping[str, Any], *, params: Mapping[str, Any]) -> Spec:
    """`spec` with other fields and params, checked. "" takes a field back, so that the default of
    the type counts. A schedule takes the place of any other. Raises BadInput naming the field.
    """
    fields = {name: None if value == "" else value for name, value in changes.items()}
    if any(name in fields for name in SCHEDULE):
        fields = dict.fromkeys(SCHEDULE) | fields
    after = msgspec.structs.replace(spec, **fields, params=dict(params))
    check_spec(after)
    check_params_size(after.params)
    return after


def check_size(spec: Spec, *, limit: int) -> None:
    """Refuse a spec that no row of the store can hold, before anything is sent. `limit` is the
    store's `max_value`.
    """
    check_params_size(spec.params)
    _check_units(encode_spec(spec), limit)


def checkpoint_text(value: Any, *, limit: int) -> str:
    """A checkpoint as its row holds it, "" for None. Raises BadInput for what no JSON can hold, or
    has more than `limit` characters of it.
    """
    if value is None:
        return ""
    try:
        check_params({"checkpoint": value})
        text = msgspec.json.encode(value).decode()
    except BadInput as problem:
        raise BadInput("checkpoint", problem.problem, problem.remedy) from None
    if (size := units(text)) > limit:
        said = f"it is {size:,} characters of JSON"
        raise BadInput("checkpoint", said, f"at most {limit:,} can be kept")
    return text


def check_params_size(params: Mapping[str, Any], *, limit: int = LARGEST_PARAMS) -> None:
    """Refuse params of a MiB or more, or longer than `limit` characters."""
    text = msgspec.json.encode(params)
    if len(text) >= LARGEST_PARAMS:
        raise _too_large(f"{len(text):,} bytes", f"less than {LARGEST_PARAMS:,}")
    _check_units(text.decode(), limit)


def _check_units(text: str, limit: int) -> None:
    if units(text) > limit:
        raise _too_large(f"{units(text):,} characters", f"{limit:,}")


def _too_large(size: str, limit: str) -> BadInput:
    problem = f"they are {size} of JSON and a row holds {limit}"
    return BadInput("params", problem, "put them in a file and give its path")


def moment_of(text: str, zone: str, field: str) -> datetime:
    """An ISO 8601 time; without an offset it is wall time in `zone`. Raises BadInput."""
    try:
        schedule = make_schedule(at=text, zone=zone)
    except BadInput as problem:
        raise BadInput(field, problem.problem, problem.remedy) from None
    assert isinstance(schedule, Once)
    return whole_milliseconds(schedule.moment)


def check_first(text: str | None, settings: RunSettings) -> None:
    """Refuse a `first` that `first_of` could not read."""
    if text == "next" and settings.schedule is None:
        problem = "there is no schedule whose next time could be waited for"
        raise BadInput("first", problem, "now, or a time")
    if text not in {None, "now", "next"}:
        moment_of(str(text), settings.timezone, "first")


def first_of(text: str | None, settings: RunSettings, now: datetime) -> datetime | None:
    """When a new item is due first: "now", "next" by its schedule, or a time. None when none
    is given.
    """
    check_first(text, settings)
    match text:
        case None:
            return None
        case "now":
            return now
        case "next":
            assert settings.schedule is not None
            following = next_due(settings.schedule, now)
            if following is None:
                raise BadInput("first", "the schedule has no next time", "now, or a time")
            return following
        case _:
            return moment_of(text, settings.timezone, "first")
