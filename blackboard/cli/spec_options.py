"""The options that say how an item is run, shared by `add`, `edit` and `run`.

Params are given as KEY=VALUE: `retries=3`, `feeds=@feeds.txt`, `window.days=90`. A value that
parses as JSON is that; any other is text. `@FILE` is the text of a file; text that begins with an @
is written as JSON: `handle="@jon"`. A dot in the key leads into an object.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click
import msgspec

from blackboard.cli.options import WholeNumber, completing
from blackboard.cli.output import warn
from blackboard.errors import BadInput
from blackboard.inputs import LARGEST_PARAMS, changed, check_keys
from blackboard.named_files import opened_file
from blackboard.schedule.cron import idle_steps
from blackboard.schedule.rrule import idle_exclusions
from blackboard.schedule.times import iso_text
from blackboard.spec import OF_ITS_SCHEDULE, Spec, check_params


def parse_pairs(pairs: Sequence[str]) -> list[tuple[list[str], Any]]:
    """Each KEY=VALUE as the path of its key and its value. Raises BadInput."""
    parsed = list[tuple[list[str], Any]]()
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise BadInput("set", f"{pair!r} is not KEY=VALUE", "as in --set days=90")
        path, value = _path(key, "set"), parse_value(text, key)
        check_params({key: value})
        parsed.append((path, value))
    return parsed


def parse_keys(texts: Sequence[str]) -> list[list[str]]:
    """Each dotted key as a path. Raises BadInput."""
    return [_path(text, "unset") for text in texts]


def laid_over(
    params: Mapping[str, Any],
    pairs: Sequence[tuple[list[str], Any]],
    unset: Sequence[list[str]] = (),
) -> dict[str, Any]:
    """A copy of `params` without the keys of `unset` and with the values of `pairs`, in order.

    Raises BadInput when a key to be unset is not there, or leads through what is not an object.
    """
    copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(params))
    for path in unset:
        inner = _object_at(copied, path, "unset", make=False)
        if path[-1] not in inner:
            problem = f"there is no {'.'.join(path)!r} in the params"
            raise BadInput("unset", problem, f"there: {', '.join(map(repr, inner)) or 'none'}")
        del inner[path[-1]]
    for path, value in pairs:
        _object_at(copied, path, "set", make=True)[path[-1]] = value
    return copied


def parse_value(text: str, key: str) -> Any:
    """A value as it is typed: JSON, else text; `@FILE` is the text in a file. Raises BadInput."""
    if text.startswith("@"):
        return _read(text[1:], key)
    try:
        value = msgspec.json.decode(text)
        check_keys(text, key)
    except (msgspec.DecodeError, UnicodeEncodeError):
        if _has_large_number(text):
            remedy = "give that number as text, in double quotes"
            raise BadInput(key, "it has a number that is too large", remedy) from None
        return text
    except RecursionError:
        raise BadInput("set", "it is nested too deeply") from None
    return value


def _has_large_number(text: str) -> bool:
    """Whether a text is a list or an object of JSON but for numbers that are too large to be read.
    Such a number by itself may be a name, such as that of a commit: `1e999`.
    """

    def refused(constant: str) -> None:
        raise ValueError(constant)

    try:
        value = json.loads(text, parse_int=str, parse_float=str, parse_constant=refused)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, list | dict)


def _path(key: str, field: str) -> list[str]:
    path = key.split(".")
    if not all(path):
        raise BadInput(field, f"{key!r} is not a key", "a name, or names with dots between them")
    return path


def _read(name: str, key: str) -> str:
    try:
        with TextIOWrapper(opened_file(Path(name).expanduser()), encoding="utf-8-sig") as file:
            return file.read(LARGEST_PARAMS)  # which is too large for any row
    except (OSError, RuntimeError) as problem:  # RuntimeError: no such user
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
            outer = ".".join(path[:depth])
            raise BadInput(field, f"{outer!r} is not an object", f"name {outer!r} itself")
        params = inner
    return params


Options = Mapping[str, str | int]
"""The values of the options, by the field of a spec; "" removes the item's own value."""


class Count(WholeNumber):
    """A whole number, or nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "" else super().convert(value, param, ctx)


_OPTIONS: Sequence[tuple[str, str, str]] = (
    ("--every", "TIME", "From start to start: 8h, 90s, 1d12h."),
    ("--cron", "EXPR", 'As in crontab: "0 3 * * *", @daily.'),
    ("--rrule", "RULE", "RFC 5545: FREQ=WEEKLY;BYDAY=MO;BYHOUR=9."),
    ("--at", "WHEN", "Once: 2026-11-21T09:00, tomorrow 09:00, in 2h."),
    ("--timezone", "ZONE", "IANA name [UTC]."),
    ("--timeout", "TIME", "A run may take so long [the interval]."),
    (
        "--stale-after",
        "TIME",
        "A lock not renewed for so long is overridden [the interval, at most 5m].",
    ),
    ("--retries", "N", "After a failure [0]."),
    ("--backoff", "TIME", "Before the first retry, at the most [10s]."),
    ("--jitter", "TIME", "Spread starts over so long [0]."),
    ("--missed", "one|all|none", "What happens to missed times [one]."),
    ("--missed-limit", "N", "With all: make up for N missed times at the most [100]."),
    ("--missed-after", "TIME", "With none: so late is missed [5m]."),
    ("--until", "WHEN", "The last slot is no later."),
    ("--max-runs", "N", "End the schedule after N runs."),
    ("--blackout", "WINDOWS", 'No runs then: "sat-sun, 22:00-06:00".'),
    ("--priority", "N", "The highest that is ready goes first [0]."),
    ("--description", "TEXT", "What it is for."),
    ("--owner", "NAME", "Who is asked about it."),
    ("--tags", "TAG,...", "To choose items by."),
)
_COUNTS = {"--retries", "--missed-limit", "--max-runs", "--priority"}
_COMPLETED = {"--timezone": "zones", "--owner": "owner", "--tags": "tag"}


def spec_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options, handed to the command as one argument `options`, and `pairs` of `--set`."""
    return _with_options(set_option(function), _OPTIONS)


def schedule_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that make a schedule without an item, handed to the command as `options`."""
    return _with_options(
        function, [option for option in _OPTIONS if _field(option[0]) in OF_ITS_SCHEDULE]
    )


def _with_options(
    function: Callable[..., Any], chosen: Sequence[tuple[str, str, str]]
) -> Callable[..., Any]:
    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        given = {_field(name): kwargs.pop(_field(name)) for name, _, _ in chosen}
        options = {name: value for name, value in given.items() if value is not None}
        return function(*args, options=options, **kwargs)

    for name, metavar, line in reversed(chosen):
        names = (name, "--tz") if name == "--timezone" else (name,)
        kind = Count() if name in _COUNTS else click.STRING
        offered = completing(_COMPLETED[name]) if name in _COMPLETED else None
        wrapped = click.option(
            *names, _field(name), metavar=metavar, type=kind, shell_complete=offered, help=line
        )(wrapped)
    return wrapped


def set_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--set KEY=VALUE`, any number of times: the argument `pairs`."""

    @wraps(function)
    def wrapped(*args: Any, pairs: Sequence[str], **kwargs: Any) -> Any:
        return function(*args, pairs=tuple(map(_with_text, pairs)), **kwargs)

    line = "A param: JSON, else text; KEY=@FILE is a file's text, A.B=... goes into A."
    return click.option("--set", "pairs", metavar="KEY=VALUE", multiple=True, help=line)(wrapped)


def _with_text(pair: str) -> str:
    """A pair with the text of its `@FILE` as JSON: a pair is parsed more than once, and a pipe of a
    shell can be read once. Raises BadInput.
    """
    key, _, text = pair.partition("=")
    return f"{key}={json.dumps(_read(text[1:], key))}" if text.startswith("@") else pair


def edited(
    spec: Spec, options: Options, *, pairs: Sequence[str] = (), unset: Sequence[str] = ()
) -> Spec:
    """`spec` with the values of the options, checked. Raises BadInput naming the field."""
    params = laid_over(spec.params, parse_pairs(pairs), parse_keys(unset))
    tags = [tag.strip() for tag in str(options.get("tags", "")).split(",")]
    return changed(spec, {**options, "tags": tags} if any(tags) else options, params=params)


SOME_TIME = "2000-01-01"
"""Stands in for an `at` until its time zone is known."""


def with_times(
    options: Options, before: Spec, zone_of: Callable[[Spec], str], now: datetime
) -> Options:
    """`options` with times as a spec has them: "tomorrow" means another day each day. They are in
    the zone that the spec has with all other options.
    """
    times = dict[str, str]()
    for name in ("at", "until"):
        if text := str(options.get(name, "")):
            try:
                datetime.fromisoformat(text.strip())
            except ValueError:
                times[name] = text
    if not times:
        return options
    others = {name: value for name, value in options.items() if name not in times}
    if "at" in times:
        others["at"] = SOME_TIME  # in the place of a schedule that may have another zone
    zone = zone_of(edited(before, others))
    return {**options, **{name: iso_text(text, zone, name, now) for name, text in times.items()}}


def _field(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def warn_idle_steps(specs: Iterable[Spec]) -> None:
    """Warns of cron steps that lead beyond their field: not every 90 minutes, but each hour; and of
    EXDATEs that exclude nothing.
    """
    for cron in {spec.cron: None for spec in specs if spec.cron}:
        if words := idle_steps(cron):
            warn(f"cron {cron!r}: {words}; for other intervals use every, as in 90m")

    for rrule, zone in {(spec.rrule, spec.timezone): None for spec in specs if spec.rrule}:
        if idle := idle_exclusions(rrule, zone):
            more = f" and {len(idle) - 1} more" if len(idle) > 1 else ""
            warn(f"EXDATE {idle[0]}{more} excludes nothing: it is not a time of the rule")
