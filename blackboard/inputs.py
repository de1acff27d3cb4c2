"""Checks what is written about an item, before anything is sent to the store.

The command line and the Python interface check the same and refuse with the same words.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from blackboard.errors import BadInput
from blackboard.rules.next_run import MILLISECOND, slot_of
from blackboard.schedule.moments import parse_moment
from blackboard.schedule.schedule import Every, Once, Schedule, next_due, opens
from blackboard.spec import (
    RunSettings,
    Spec,
    check_first,
    check_params,
    check_spec,
    encode_spec,
    plain,
)
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
    check_params(params)
    after = msgspec.structs.replace(spec, **fields, params=plain(params))
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
        text = msgspec.json.encode(plain(value)).decode()
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


def first_of(text: str | None, settings: RunSettings, now: datetime) -> datetime | None:
    """When a new item is due first: "now", "next" by its schedule, a time, or a duration from now.
    None given: as its type says; None if that says nothing either, and then the schedule decides
    (`rules.next_run.first_slot`). Raises BadInput, also where the schedule has no next time.
    """
    text = settings.first if text is None else text
    check_first(text, settings.timezone, has_schedule=settings.schedule is not None)
    schedule = settings.schedule
    match text:
        case None:
            if schedule is not None and not _has_first_slot(schedule, now):
                limits = schedule.limits
                field = "blackout" if limits.windows else "until" if limits.until else "schedule"
                problem = "there is no next time" + (" by it" if field != "schedule" else "")
                raise BadInput(field, problem, "change it, or say when it runs first: first")
            return None
        case "now":
            return now
        case "next":
            assert schedule is not None
            following = next_due(schedule, now)
            if following is None:
                raise BadInput("first", "the schedule has no next time", "now, or a time")
            return following
        case _:
            return parse_moment(text, settings.timezone, "first", now)


def _has_first_slot(schedule: Schedule, now: datetime) -> bool:
    """Whether a new item has a slot by its schedule. An `every` is due at once, an `at` also when
    its time has passed.
    """
    if isinstance(schedule, Every):
        begins, until = opens(schedule, now), schedule.limits.until
        return begins is not None and (until is None or begins <= until)
    after = slot_of(schedule) - MILLISECOND if isinstance(schedule, Once) else now
    return next_due(schedule, after) is not None
