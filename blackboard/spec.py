"""The settings of a run, and the layers that declare them: item, then `[types]`, then `@handler`.

A layer is a `Spec`: a field that it leaves out is taken from the next one. The schedule counts as
one field: the first layer that has any of every, cron, rrule and at decides it.

A spec is checked before it is written: `check_spec` refuses what its types and schedules do not.

A spec that passes is the same after it was written to a row as JSON, exported as TOML and read
back.
"""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, Literal, TypedDict

import msgspec
from msgspec import Struct

from blackboard.errors import BadInput, BadSpec
from blackboard.model import NEVER
from blackboard.phrases import quoted
from blackboard.schedule.limits import Calendars, limits
from blackboard.schedule.rrule import zone_in
from blackboard.schedule.schedule import Every, Schedule, make_schedule
from blackboard.schedule.times import last_moment, parse_duration, parse_moment

SHORTEST_LEASE = timedelta(seconds=3)
MOST_TAGS = 50
_JOINERS = "\u200c\u200d"
_TAG = re.compile(r"\w([\w.:/-]{0,48}\w)?")
DEFAULT_BACKOFF = timedelta(seconds=10)
DEFAULT_MISSED_AFTER = timedelta(minutes=5)
Missed = Literal["one", "all", "none"]
INTERVAL: Literal["interval"] = "interval"
"""As `stale_after`: a lock is good for the interval of the schedule, as in elmcity."""

OF_ITS_SCHEDULE = ("every", "cron", "rrule", "at", "timezone", "until", "max_runs", "blackout")
"""The fields of a spec that make its schedule."""
OF_ITS_TIMES = (*OF_ITS_SCHEDULE, "jitter", "missed", "missed_limit", "missed_after", "timeout")
"""The fields of a spec that say when an item is due, and for how long it may run: what is held, as
partitions and elections are, has none of them."""


class Spec(msgspec.Struct, omit_defaults=True, kw_only=True, frozen=True):
    """What one layer says about a run; None leaves it to the next layer. Durations are text like
    "8h" or "90s". `RunSettings` has the defaults, docs/settings.md shows both.
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
    """A run that lasts longer is stopped. The interval of a cron or rrule is the shortest of the
    next ones; of an `at`, and of no schedule, an hour. Default: the interval of the schedule, at
    least 1m."""
    stale_after: str | None = None
    """A lock that its worker has not renewed for this long is overridden; at least 3s, or
    `interval`: the interval of the schedule. Default: the interval of the schedule, from 10s to
    5m."""
    retries: int | None = None
    """How often a failed run is run again before its next slot."""
    backoff: str | None = None
    """The longest wait before the first retry; it doubles with each retry."""
    jitter: str | None = None
    """Spreads the items of a slot over this time; each item always gets the same part of it."""
    missed: str | None = None
    """What makes up for slots that passed while no worker ran: `one` run, `all`, or `none`."""
    missed_limit: int | None = None
    """With `missed = "all"`: how many of the missed slots are made up for at the most, the latest
    ones; 1 to 1000. The slot that waits comes on top."""
    missed_after: str | None = None
    """With `missed = "none"`: a slot that is later than this is missed."""
    until: str | None = None
    """The last time at which a slot may be, such as `2026-12-31` (that day included)."""
    max_runs: int | None = None
    """After so many runs, each attempt counted, the schedule ends."""
    blackout: str | None = None
    """Times without runs, such as `sat-sun, mon-fri 22:00-06:00, 12-24..01-02, holidays`; a name is
    that of a calendar in `[calendars]`. `none`: no such times, although the type has some."""
    priority: int | None = None
    """Of the ready items that a worker has read, those with the highest priority run first; -100 to
    100."""
    description: str | None = None
    """What it is for."""
    owner: str | None = None
    """The person or team that is asked about it."""
    tags: list[str] | None = None
    """Names by which items are chosen, as in `blackboard show tag:eu`."""
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    """What the handler is given as `item.params`; `${NAME}` is replaced from the environment.
    A type has none."""

    @property
    def has_schedule(self) -> bool:
        return any((self.every, self.cron, self.rrule, self.at))


class RunOptions(TypedDict, total=False):
    """The fields of a `Spec`, which describes them, in a Python program. A field that is left out,
    or None, is taken from the next layer: for an item `[types.TYPE]`, then the type's `@handler`.
    Durations are text such as "90s" or "1d12h", timedelta, or seconds. In an edit, "" takes back
    what the item says.
    """

    every: str | float | timedelta | None
    cron: str | None
    rrule: str | None
    at: str | datetime | None
    timezone: str | None
    timeout: str | float | timedelta | None
    stale_after: str | float | timedelta | None
    retries: int | Literal[""] | None
    backoff: str | float | timedelta | None
    jitter: str | float | timedelta | None
    missed: Literal["one", "all", "none", ""] | None
    missed_limit: int | Literal[""] | None
    missed_after: str | float | timedelta | None
    until: str | date | None
    max_runs: int | Literal[""] | None
    blackout: str | None
    priority: int | Literal[""] | None
    description: str | None
    owner: str | None
    tags: Sequence[str] | Literal[""] | None


class Labels(Struct, frozen=True, kw_only=True):
    """What people say of an item; no run depends on it."""

    description: str = ""
    owner: str = ""
    tags: tuple[str, ...] = ()


class Concurrency(Struct, frozen=True):
    """How many runs of a type go on at a time on the whole board."""

    most: int
    key: str | None = None
    """The param whose values are counted apart; None: all runs of the type count together."""

    def value_of(self, params: Mapping[str, Any]) -> str:
        """The value that a run with these params is counted by, as JSON; "" without a key."""
        if self.key is None:
            return ""
        return msgspec.json.encode(params.get(self.key), order="deterministic").decode()


MOST_CONCURRENCY = 10_000
MOST_SLOTS = 10_000
"""The most runs of a worker at a time."""


def check_count(name: str, number: object, *, most: int) -> None:
    """Raises BadInput for what is not a whole number from 1 to `most`."""
    if type(number) is not int:
        raise BadInput(name, f"{quoted(number)} is not a number of runs", "1 or more")
    if number > most:
        raise BadInput(name, "it is too many", f"{most:,} at the most")
    if number < 1:
        raise BadInput(name, f"{quoted(number)} is too few", "1 or more")


def concurrency_of(most: object, key: object) -> Concurrency | None:
    """The limit that `concurrency` and `key` mean; a key alone means one run at a time. Raises
    BadInput naming the one that is wrong.
    """
    if key is not None and (not isinstance(key, str) or not key):
        raise BadInput("key", f"{quoted(key)} is not a name of a param", "such as host")
    if most is None:
        return None if key is None else Concurrency(1, key)
    if type(most) is not int or not 1 <= most <= MOST_CONCURRENCY:
        remedy = f"1 to {MOST_CONCURRENCY:,}"
        raise BadInput("concurrency", f"{quoted(most)} is not a number of runs", remedy)
    return Concurrency(most, key)


class RunSettings(Struct, frozen=True, kw_only=True):
    """The layers resolved: all that a worker needs to run an item and to plan its next run."""

    schedule: Schedule | None = None
    """None: the item runs once, when it is added or asked for."""
    timezone: str = "UTC"
    timeout: timedelta | None = None
    """None: the interval."""
    stale_after: timedelta | Literal["interval"] | None = None
    """None: the interval, and five minutes at the most."""
    retries: int = 0
    backoff: timedelta = DEFAULT_BACKOFF
    jitter: timedelta = timedelta(0)
    missed: Missed = "one"
    missed_limit: int = 100
    missed_after: timedelta = DEFAULT_MISSED_AFTER
    fenced: bool = False
    endless: bool = False
    """Whether a run has no time limit: that of a pump ends when its worker releases it."""
    slots: int | None = None
    """Runs of this type in one worker at a time; None: as many as it has slots."""
    concurrency: Concurrency | None = None
    """Runs of this type on the whole board at a time; None: as many as the workers have slots."""
    priority: int = 0
    labels: Labels = Labels()
    first: str | None = None
    """When a new item runs first, where it says nothing: now, next, or a time."""
    has_handler: bool = True
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
    unknown = unknown_fields(text)
    if not unknown:
        return encode_spec(spec)
    return msgspec.json.encode(msgspec.to_builtins(spec) | unknown).decode()


def unknown_fields(text: str) -> dict[str, Any]:
    """The fields of a newer version in a spec that can be decoded."""
    fields: dict[str, Any] = msgspec.json.decode(text)
    return {name: fields[name] for name in fields if name not in Spec.__struct_fields__}


def decode_spec(text: str) -> Spec:
    """A spec from a row; fields of a newer version are passed over. Raises BadSpec."""
    if is_nested_deeper(text, 2 + DEEPEST):
        raise BadSpec("it is nested too deeply")
    try:
        return msgspec.json.decode(text, type=Spec)
    except ValueError as problem:
        raise BadSpec(str(problem)) from None


def params_of(spec: str, once: str) -> dict[str, Any]:
    """The params of a run: the item's, and over them what a request gave for this run alone.
    Raises BadSpec.
    """
    if is_nested_deeper(once, 1 + DEEPEST):
        raise BadSpec("the params of this run are nested too deeply")
    try:
        over = msgspec.json.decode(once, type=dict[str, Any]) if once else {}
    except ValueError as problem:
        raise BadSpec(f"the params of this run: {problem}") from None
    return decode_spec(spec).params | over


def resolve(layers: Sequence[Spec], *, calendars: Calendars | None = None) -> RunSettings:
    """The settings of a run, but for those that only a type has: the first layer that has a field
    decides it. Without `calendars` those that a blackout names are not looked up.

    Raises BadInput naming the field.
    """

    def value_of(name: str) -> Any:
        return next(
            (value for layer in layers if (value := getattr(layer, name)) is not None), None
        )

    def duration(name: str) -> timedelta | None:
        text = value_of(name)
        return None if text is None else parse_duration(text, name)

    scheduled = next((layer for layer in layers if layer.has_schedule), Spec())
    rrule = scheduled.rrule
    of_rule = zone_in(rrule) if isinstance(rrule, str) else None  # no text: refused later
    zone = value_of("timezone") or of_rule or "UTC"
    until = value_of("until")
    bounds = limits(
        until=None if until is None else last_moment(until, zone, "until"),
        runs=_number("max_runs", value_of("max_runs"), lowest=1, highest=1_000_000),
        blackout=value_of("blackout"),
        zone=zone,
        calendars=calendars,
    )
    schedule = make_schedule(
        every=scheduled.every,
        cron=scheduled.cron,
        rrule=rrule,
        at=scheduled.at,
        zone=zone,
        limits=bounds,
    )
    return RunSettings(
        schedule=schedule,
        timezone=zone,
        timeout=duration("timeout"),
        stale_after=_lease(value_of("stale_after")),
        retries=_number("retries", value_of("retries")) or 0,
        backoff=duration("backoff") or DEFAULT_BACKOFF,
        jitter=duration("jitter") or timedelta(0),
        missed=_missed(value_of("missed")),
        missed_limit=_number("missed_limit", value_of("missed_limit"), lowest=1, highest=1_000)
        or 100,
        missed_after=duration("missed_after") or DEFAULT_MISSED_AFTER,
        priority=_number("priority", value_of("priority"), lowest=-100, highest=100) or 0,
        labels=Labels(
            description=value_of("description") or "",
            owner=value_of("owner") or "",
            tags=tuple(dict.fromkeys(value_of("tags") or ())),
        ),
    )


def _lease(text: str | None) -> timedelta | Literal["interval"] | None:
    if text is None or text == INTERVAL:
        return INTERVAL if text else None
    lease = parse_duration(text, "stale_after")
    if lease < SHORTEST_LEASE:
        raise BadInput("stale_after", f"{text!r} is too short", "3s at the least")
    return lease


def _number(name: str, value: int | None, *, lowest: int = 0, highest: int = 10_000) -> int | None:
    if value is not None and not lowest <= value <= highest:
        written = f"{value} is" if abs(value) < 2**63 else "it is far"  # Python writes no longer
        raise BadInput(name, f"{written} out of range", f"{lowest} to {highest}")
    return value


def _missed(value: str | None) -> Missed:
    match value:
        case None:
            return "one"
        case "one" | "all" | "none":
            return value
        case _:
            raise BadInput("missed", f"{quoted(value)} is not a policy", "one, all or none")


DEEPEST = 100
"""The most objects and lists within each other, in a value of params."""
_BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]')
"""The texts and brackets of JSON. A text may lack its end: each quote in it would be read as the
beginning of one, else, up to the end of all."""


def is_nested_deeper(text: str, levels: int) -> bool:
    """Whether JSON text has more lists and objects within each other than so many levels. How deep
    a JSON reader gets depends on the Python, and on its stack.
    """
    if len(text) <= levels or text.count("[") + text.count("{") <= levels:
        return False
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        match bracket[0]:
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
        if depth > levels:
            return True
    return False


def check_spec(spec: Spec) -> None:
    """Checks every field of a spec, and the whole. Raises BadInput naming the field."""
    for name in Spec.__struct_fields__:
        if getattr(spec, name) == "":
            raise BadInput(name, "it is empty", "leave it out to say nothing")
    check_params(spec.params)
    _check_labels(spec)
    settings = resolve([spec])
    if isinstance(settings.schedule, Every) and settings.jitter > settings.schedule.interval:
        problem = f"{spec.jitter!r} is longer than the interval, {spec.every!r}"
        raise BadInput("jitter", problem, "give at most the interval")


def is_of_a_line(char: str) -> bool:
    """Whether a label may have a character: one that can be printed, any space, or one that joins
    letters and pictures.
    """
    is_space = unicodedata.category(char) == "Zs"
    return char.isprintable() or is_space or char in _JOINERS


def _check_labels(spec: Spec) -> None:
    for name, longest in (("description", 1_000), ("owner", 100)):
        text = getattr(spec, name)
        if text is None:
            continue
        if not text.strip():
            raise BadInput(name, "it is empty", "leave it out to say nothing")
        if len(text) > longest:
            remedy = f"{longest:,} at the most"
            raise BadInput(name, f"it has {len(text):,} characters", remedy)
        if bad := next((char for char in text if not is_of_a_line(char)), ""):
            remedy = "one line of characters that can be seen"
            raise BadInput(name, f"it holds U+{ord(bad):04X}", remedy)
    for tag in spec.tags or ():
        if not _TAG.fullmatch(tag):
            remedy = "letters, digits, and - _ . : / inside; 50 at the most"
            raise BadInput("tags", f"{tag[:60]!r} is not a tag", remedy)
    if len(spec.tags or ()) > MOST_TAGS:
        raise BadInput("tags", f"there are {len(spec.tags or ())}", f"{MOST_TAGS} at the most")


def check_params(params: Mapping[str, Any]) -> None:
    """Refuses params that JSON or TOML could not write and read back the same, once tuples and sets
    are lists. Raises BadInput.
    """
    check_value(params, "params", DEEPEST + 1)


def plain(value: Any) -> Any:
    """A checked value in plain types: texts and numbers of subclasses become those of the base
    class, tuples and sets become lists, objects of a dataclass or Struct dicts, an Enum its value,
    and the rest of what msgspec encodes (times, Decimal, UUID, bytes) text.
    """
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case Mapping():
            return {plain(key): plain(inner) for key, inner in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(inner) for inner in value]
        case _:
            return plain(msgspec.to_builtins(value))


def check_value(
    value: Any, where: str, deepest: int = DEEPEST, *, may_be_null: bool = False
) -> None:
    """As `check_params`, for one value, which `may_be_null` or hold nulls. Raises BadInput."""
    check = partial(check_value, may_be_null=may_be_null)
    if deepest == 0:
        raise BadInput(where, "it is nested too deeply", f"{DEEPEST} levels at the most")
    match value:
        case None if may_be_null:
            pass
        case list() | tuple() | set() | frozenset():
            for inner in value:
                check(inner, where, deepest - 1)
        case Mapping():
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise BadInput(where, f"the key {quoted(key)} is not text", "give it as text")
                _check_scalar(key, where)
                check(inner, f"{where}.{key}", deepest - 1)
        case None | bool() | str() | int() | float():
            _check_scalar(value, where)
        case _:
            try:
                inner = plain(value)
            except (TypeError, ValueError, RecursionError):
                kinds = "text, numbers, true or false, lists and dicts"
                problem = f"{quoted(value)} cannot be kept"
                raise BadInput(where, problem, kinds) from None
            check(inner, where, deepest)


def _check_scalar(value: object, where: str) -> None:
    match value:
        case None:
            remedy = "leave the key out; `edit --unset KEY` takes one away"
            raise BadInput(where, "null says nothing", remedy)
        case int() if not -(2**63) <= value < 2**63:
            raise BadInput(where, "the number is too large", "give it as text")
        case float() if not math.isfinite(value):
            raise BadInput(where, f"{value} is not a number", "a number, or text")
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise BadInput(where, "it is not UTF-8 text") from None


def check_first(text: str | None, zone: str) -> None:
    """Refuses a `first` that cannot be read. Raises BadInput."""
    if text not in {None, "now", "next"}:
        try:
            parse_moment(str(text), zone, "first", NEVER)
        except BadInput as bad:
            raise BadInput(bad.field, bad.problem, f"now, next, or {bad.remedy}") from None
