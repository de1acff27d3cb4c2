"""What a run is run with, and where that is declared: item, then `[types]`, then `@handler`.

A layer is a `Spec`: what it leaves out, the next one says. The schedule counts as one thing: a
layer that has any of every, cron, rrule and at decides it.

A spec that is written is checked: `check_spec` refuses what its types and schedules do not.

A spec that passes is the same after it was written to a row as JSON, exported as TOML and read
back.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import msgspec

from blackboard.errors import BadInput
from blackboard.schedule.durations import parse_duration
from blackboard.schedule.rrule import zone_in
from blackboard.schedule.schedule import Schedule, make_schedule

SHORTEST_LEASE = timedelta(seconds=3)
DEFAULT_BACKOFF = timedelta(seconds=10)
DEFAULT_MISSED_AFTER = timedelta(minutes=5)
Missed = Literal["one", "all", "none"]


class Spec(msgspec.Struct, omit_defaults=True, kw_only=True, frozen=True):
    """What one layer says about a run; None leaves it to the next layer. Durations are text like
    "8h" or "90s". `RunSettings` has the defaults, `settings.described` shows both.
    """

    every: str | None = None
    """The interval, counted from the last start. An item has one of every, cron, rrule and at."""
    cron: str | None = None
    """Five fields, or a name such as `@daily`."""
    rrule: str | None = None
    """A recurrence rule of RFC 5545."""
    at: str | None = None
    """One time, such as `2026-12-24T18:00`."""
    timezone: str | None = None
    """The IANA name of the time zone in which the schedule counts."""
    timeout: str | None = None
    """A run that lasts longer is stopped. Default: the interval of the schedule."""
    stale_after: str | None = None
    """A lock that its worker has not renewed for this long is overridden; at least 3s. Default:
    the interval of the schedule."""
    retries: int | None = None
    """How often a failed run is run again before its next slot."""
    backoff: str | None = None
    """The longest wait before the first retry; it doubles with each retry."""
    jitter: str | None = None
    """Spreads the items of a slot over this time; each item always gets the same part of it."""
    missed: str | None = None
    """What makes up for slots that passed while no worker ran: `one` run, `all`, or `none`."""
    missed_limit: int | None = None
    """With `missed = "all"`: the most slots that are made up for, the latest ones."""
    missed_after: str | None = None
    """With `missed = "none"`: a slot that is later than this is missed."""
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    """What the handler is given as `item.params`; `${NAME}` is replaced from the environment.
    A type has none."""

    @property
    def has_schedule(self) -> bool:
        return any((self.every, self.cron, self.rrule, self.at))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The layers resolved: all that a worker needs to run an item and to plan its next run."""

    schedule: Schedule | None = None
    """None: the item runs once, when it is added or asked for."""
    timezone: str = "UTC"
    timeout: timedelta | None = None
    """None: the interval."""
    stale_after: timedelta | None = None
    """None: the interval."""
    retries: int = 0
    backoff: timedelta = DEFAULT_BACKOFF
    jitter: timedelta = timedelta(0)
    missed: Missed = "one"
    missed_limit: int = 100
    missed_after: timedelta = DEFAULT_MISSED_AFTER
    fenced: bool = False
    endless: bool = False
    """Whether a run has no time limit: that of a pump ends when its worker lets it go."""
    slots: int | None = None
    """Runs of this type in one worker at a time; None: as many as it has slots."""
    is_whole: bool = True
    """False where the type's handler, which may say more, is not at hand."""

    @property
    def text(self) -> str:
        """The schedule as it stands in an item's column."""
        return self.schedule.text if self.schedule else ""


def encode_spec(spec: Spec) -> str:
    """A spec as it stands in a row."""
    return msgspec.json.encode(spec).decode()


def rewrite_spec(text: str, spec: Spec) -> str:
    """`spec` as it stands in a row that had `text`: fields of a newer version are kept."""
    before: dict[str, Any] = msgspec.json.decode(text)
    unknown = {name: before[name] for name in before if name not in Spec.__struct_fields__}
    if not unknown:
        return encode_spec(spec)
    return msgspec.json.encode(msgspec.to_builtins(spec) | unknown).decode()


def decode_spec(text: str) -> Spec:
    """A spec from a row; fields of a newer version are passed over. ValueError when it is none."""
    try:
        return msgspec.json.decode(text, type=Spec)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def params_of(spec: str, once: str) -> dict[str, Any]:
    """The params of a run: the item's, and over them what a `run now` gave for this run alone."""
    over: dict[str, Any] = msgspec.json.decode(once) if once else {}
    return decode_spec(spec).params | over


def resolve(
    layers: Sequence[Spec], *, fenced: bool = False, slots: int | None = None
) -> RunSettings:
    """The first layer that has a field decides it.

    Raises BadInput naming the field.
    """

    def first(name: str) -> Any:
        return next((value for one in layers if (value := getattr(one, name)) is not None), None)

    def duration(name: str) -> timedelta | None:
        text = first(name)
        return None if text is None else parse_duration(text, name)

    one = next((layer for layer in layers if layer.has_schedule), Spec())
    zone = first("timezone") or _zone_of_rule(one.rrule) or "UTC"
    schedule = make_schedule(every=one.every, cron=one.cron, rrule=one.rrule, at=one.at, zone=zone)
    stale_after = duration("stale_after")
    if stale_after is not None and stale_after < SHORTEST_LEASE:
        raise BadInput("stale_after", f"{first('stale_after')!r} is too short", "3s at the least")
    return RunSettings(
        schedule=schedule,
        timezone=zone,
        timeout=duration("timeout"),
        stale_after=stale_after,
        retries=_count("retries", first("retries"), default=0, lowest=0),
        backoff=duration("backoff") or DEFAULT_BACKOFF,
        jitter=duration("jitter") or timedelta(0),
        missed=_missed(first("missed")),
        missed_limit=_count("missed_limit", first("missed_limit"), default=100, lowest=1),
        missed_after=duration("missed_after") or DEFAULT_MISSED_AFTER,
        fenced=fenced,
        slots=slots,
    )


def _zone_of_rule(rrule: str | None) -> str | None:
    return zone_in(rrule) if isinstance(rrule, str) else None  # what is no text is refused later


def _count(name: str, value: int | None, *, default: int, lowest: int) -> int:
    if value is None:
        return default
    if not lowest <= value <= 10_000:
        raise BadInput(name, f"{value} is out of range", f"{lowest} to 10000")
    return value


def _missed(value: str | None) -> Missed:
    match value:
        case None:
            return "one"
        case "one" | "all" | "none":
            return value
        case _:
            raise BadInput("missed", f"{value!r} is not a policy", "one, all or none")


DEEPEST = 100
"""Objects and lists within each other, in params."""


def check_spec(spec: Spec) -> None:
    """Check every field of a spec, and the whole. Raises BadInput naming the field."""
    for name in Spec.__struct_fields__:
        if getattr(spec, name) == "":
            raise BadInput(name, "it is empty", "leave it out to say nothing")
    check_params(spec.params)
    resolve([spec])


def check_params(params: Mapping[str, Any]) -> None:
    """Refuse what JSON or TOML could not write and read back the same. Raises BadInput."""
    for key, value in params.items():
        _check_value(value, f"params.{key}", DEEPEST)


def _check_value(value: Any, where: str, deepest: int) -> None:
    if deepest == 0:
        raise BadInput(where, "it is nested too deeply", f"{DEEPEST} levels at the most")
    match value:
        case None:
            raise BadInput(where, "null says nothing", "leave the key out")
        case float() if not math.isfinite(value):
            raise BadInput(where, f"{value} is no number", "a number, or text")
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise BadInput(where, "it is not UTF-8 text") from None
        case list():
            for one in value:
                _check_value(one, where, deepest - 1)
        case dict():
            for key, one in value.items():
                _check_value(one, f"{where}.{key}", deepest - 1)
