"""The options that say how an item is run, the same for `add` and `edit`."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import click

from blackboard.cli.values import laid_over, parse_keys, parse_pairs
from blackboard.errors import BadInput
from blackboard.inputs import changed
from blackboard.spec import Spec

Said = Mapping[str, str | int]
"""What the options said, by the field of a spec; "" takes back what the item says."""


class Count(click.ParamType[int | str]):
    """A number, or nothing."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        return value if value == "" else click.INT.convert(value, param, ctx)


_OPTIONS: Sequence[tuple[str, str, str]] = (
    ("--every", "TIME", "From start to start: 8h, 90s, 1d12h."),
    ("--cron", "EXPR", 'As in crontab: "0 3 * * *", @daily.'),
    ("--rrule", "RULE", "RFC 5545: FREQ=WEEKLY;BYDAY=MO;BYHOUR=9."),
    ("--at", "WHEN", "Once: 2026-11-21T09:00, in the zone unless it names one."),
    ("--timezone", "ZONE", "IANA name [UTC]."),
    ("--timeout", "TIME", "A run may take so long [the interval]."),
    ("--stale-after", "TIME", "A lock untouched for so long is taken over [the interval]."),
    ("--retries", "N", "After a failure [0]."),
    ("--backoff", "TIME", "Before the first retry, at the most [10s]."),
    ("--jitter", "TIME", "Spread starts over so long [0]."),
    ("--missed", "one|all|none", "What becomes of times nobody could serve [one]."),
    ("--missed-limit", "N", "With all: so many at the most [100]."),
    ("--missed-after", "TIME", "With none: so late is missed [5m]."),
)
_COUNTS = {"--retries", "--missed-limit"}


def spec_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options, handed to the command as one argument `said`, and `pairs` of `--set`."""

    @wraps(function)
    def gathered(*args: Any, **kwargs: Any) -> Any:
        given = {_field(name): kwargs.pop(_field(name)) for name, _, _ in _OPTIONS}
        said = {name: value for name, value in given.items() if value is not None}
        return function(*args, said=said, **kwargs)

    wrapped = set_option(gathered)
    for name, metavar, line in reversed(_OPTIONS):
        names = (name, "--tz") if name == "--timezone" else (name,)
        kind = Count() if name in _COUNTS else click.STRING
        wrapped = click.option(*names, _field(name), metavar=metavar, type=kind, help=line)(wrapped)
    return wrapped


def set_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--set KEY=VALUE`, as often as wanted: the argument `pairs`."""
    line = "A param: JSON, else text; KEY=@FILE is a file's text, A.B=... goes into A."
    return click.option("--set", "pairs", metavar="KEY=VALUE", multiple=True, help=line)(function)


def edited(spec: Spec, said: Said, *, pairs: Sequence[str] = (), unset: Sequence[str] = ()) -> Spec:
    """`spec` with what was said, checked. Raises BadInput naming the field."""
    params = laid_over(spec.params, parse_pairs(pairs), parse_keys(unset))
    return changed(spec, said, params=params)


def new_spec(said: Said, *, pairs: Sequence[str]) -> Spec:
    """The spec of a new item: here nothing can be taken back."""
    for name, value in said.items():
        if value == "":
            raise BadInput(name, "it is empty", "leave it out to say nothing")
    return edited(Spec(), said, pairs=pairs)


def _field(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")
