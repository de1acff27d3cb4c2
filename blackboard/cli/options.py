"""The options of every command, in front of it or after it, and those that several commands have.

Imports here are cheap: `blackboard --help` loads this module.
"""

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from blackboard.errors import BadInput

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Adds options to the function of a command."""
JSON_ASKED = "blackboard.json"
"""The key in click's context under which it keeps whether JSON is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The values of the options that commands share. Those after the command take precedence."""

    store: str | None = None
    board: str | None = None
    config: str | None = None
    json: bool = False
    whole: bool = False
    """Whether the command is about the board as a whole: a bare `--board`."""
    exact: bool = False
    """`--exact`: ids are taken as written; of `status`, items are counted now."""
    reason: str = ""
    absolute: bool = False
    watch: str | None = None
    """The time between two frames; None: it is shown once."""

    def under(self, other: "Chosen | None") -> "Chosen":
        """These options, and those of `other` where these are not given."""
        if other is None:
            return self
        return Chosen(
            store=other.store if self.store is None else self.store,
            board=other.board if self.board is None else self.board,
            config=other.config if self.config is None else self.config,
            json=self.json or other.json,
            whole=self.whole,
            exact=self.exact,
            reason=self.reason,
            absolute=self.absolute,
            watch=self.watch,
        )


_CHOSEN: ContextVar[Chosen] = ContextVar("chosen")
"""Those of the command that runs. Click's own context is over where an error is printed."""
_COMMAND = re.compile("`blackboard (azurite|--board )?")
"""A command in a text."""


def program() -> str:
    """How this program was called: as `bb` says where it was called by that."""
    return os.environ.get("BLACKBOARD_PROG", "blackboard")


def as_typed(text: str) -> str:
    """A text of this program, in which each command is as it is to be typed: with the options by
    which the one that runs finds its board. One that names a board has that one.
    """
    chosen = _CHOSEN.get(Chosen())
    given = {"config": chosen.config, "store": chosen.store, "board": chosen.board}

    def typed(match: re.Match[str]) -> str:
        first = match[1] or ""
        options = [
            f"--{name} {shlex.quote(value)} "
            for name, value in given.items()
            if value and first not in {"azurite", f"--{name} "}
        ]
        return f"`{shlex.quote(program())} {''.join(options)}{first}"

    return _COMMAND.sub(typed, text)


_CONFIG = click.option(
    "--config", metavar="FILE", type=click.Path(), help="Settings [./blackboard.toml]."
)
_BOARD = click.option("--board", metavar="NAME", help="Which board of the store [blackboard].")
_BARE = "\0"
"""A `--board` without a name. No argument of a process has this character."""
_WHOLE = click.option(
    "--board",
    metavar="[NAME]",
    is_flag=False,
    flag_value=_BARE,
    help="The whole board, where no item is named; NAME: which of the store.",
)
_STORE = click.option(
    "--store",
    metavar="URL",
    help="A path, azurite:, or https://ACCOUNT.table.core.windows.net/TABLE [$BLACKBOARD_STORE].",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")

_SHARED = ("exact", "reason", "absolute", "watch")
"""Options of several commands, which are handed to them in `chosen`."""
_COMMON = {"store", "board", "config", "as_json"}
"""The names of the options of `common`."""


def common(*, whole: bool = False, clears: bool = False) -> Decorator:
    """Adds the options of every command. They are one argument, `chosen`, with those of `_SHARED`.
    With `whole` the command may be about the board as a whole. An option whose text is empty is
    refused, unless that is its default; with `clears` it has a meaning.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def with_chosen(*args: Any, **kwargs: Any) -> Any:
            board = kwargs.pop("board")
            own = Chosen(
                store=kwargs.pop("store"),
                board=None if board == _BARE else board,
                config=kwargs.pop("config"),
                json=kwargs.pop("as_json", False),
                whole=whole and board is not None and not kwargs["ids"],
                **{name: kwargs.pop(name) for name in _SHARED if name in kwargs},
            )
            context = click.get_current_context()
            if not clears:
                _refuse_empty(context)
            chosen = own.under(context.parent.obj if context.parent else None)
            context.meta[JSON_ASKED] = chosen.json
            _CHOSEN.set(chosen)
            return function(*args, chosen=chosen, **kwargs)

        wrapped: Callable[..., Any] = with_chosen
        for option in (_JSON, _CONFIG, _WHOLE if whole else _BOARD, _STORE):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def cli_command(
    epilog: str, *, whole: bool = False, clears: bool = False
) -> Callable[[Callable[..., Any]], click.Command]:
    """A command with the options of `common` behind its own; its `--help` ends with this text as it
    is.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        command = bare_command(epilog)(common(whole=whole, clears=clears)(function))
        command.params.sort(key=lambda param: param.name in _COMMON)
        return command

    return decorate


def bare_command(epilog: str) -> Callable[[Callable[..., Any]], click.Command]:
    """A command that has its own options alone."""
    return click.command(epilog=f"\b\n{epilog}")


# ---- what was typed


def typed(ctx: click.Context) -> Iterator[tuple[click.Parameter, Any]]:
    """The options and arguments of a command that were given to it, with their values."""
    for param in ctx.command.params:
        name = param.name or ""
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE and ctx.params[name] != ():
            yield param, ctx.params[name]


def _refuse_empty(ctx: click.Context) -> None:
    """Raises BadInput for an option without a text: of a variable that is not set, say."""
    for param, value in typed(ctx):
        texts = value if isinstance(value, tuple) else (value,)
        if isinstance(param, click.Option) and "" in texts and param.default != "":
            option = param.opts[0].lstrip("-")
            raise BadInput(option, "it is empty", "give a value, or leave it out")


def refuse_beside(option: str, problem: str, *, allowed: Collection[str]) -> None:
    """Raises BadInput where options were given that do not go with this one. Those that every
    command has do.
    """
    fitting = {option, *allowed, *_COMMON}
    given = [param for param, _ in typed(click.get_current_context()) if param.name not in fitting]
    if given:
        raise BadInput(option, problem, f"leave out {', '.join(param.opts[0] for param in given)}")


# ---- options that several commands have

absolute_option = click.option("--absolute", is_flag=True, help="Times in UTC instead of '3m ago'.")


def completing(
    subject: str,
) -> "Callable[[click.Context, click.Parameter, str], list[CompletionItem]]":
    """Completes a parameter; `completion.complete` says by what."""
    return partial(_complete, subject)


def _complete(
    subject: str, ctx: click.Context, _param: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    from blackboard.cli import completion  # noqa: PLC0415 - only when asked

    return completion.complete(subject, ctx, incomplete)


def ids_argument(*, required: bool = True) -> Decorator:
    """The argument `ids`, and the option `--exact`; see `display/item_queries.py`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        option = click.option("--exact", is_flag=True, help="Take ids as written: no globs.")
        metavar = "ID..." if required else "[ID]..."
        argument = click.argument(
            "ids", nargs=-1, required=required, metavar=metavar, shell_complete=completing("ids")
        )
        return argument(option(function))

    return decorate


types_option = click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    shell_complete=completing("types"),
    help="Items of this type.",
)


def _overdue(_ctx: click.Context, _param: click.Parameter, text: str) -> timedelta:
    """The time after which an item is overdue. 0 is allowed: every late item is overdue."""
    from blackboard.schedule.times import UNITS, parse_duration  # noqa: PLC0415 - not for --help

    if re.fullmatch(rf"0+\s*({'|'.join(UNITS)})?", text.strip()):
        return timedelta(0)
    return parse_duration(text, "overdue")


def overdue_option(default: str) -> Decorator:
    """`--overdue`, handed to the command as a timedelta."""
    line = f"Ready for longer than this is overdue [{default}]; 0: all that is late."
    return click.option("--overdue", default=default, callback=_overdue, metavar="TIME", help=line)


cycle_option = click.option(
    "--cycle", metavar="TIME", help="Between two walks of a worker [[worker] cycle]."
)


def _checked_reason(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    """Refuses a reason that no row can hold, before anything is done."""
    from blackboard.inputs import check_text  # noqa: PLC0415 - not for --help

    return check_text("reason", text)


reason_option = click.option(
    "--reason", default="", callback=_checked_reason, help="Why: `log --actions` shows it."
)
"""Of each command that records what it did."""


def jobs_option(line: str) -> Decorator:
    complete = completing("jobs")
    return click.option("--jobs", multiple=True, metavar="JOBS", shell_complete=complete, help=line)


_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]+)?|\.[0-9]+)")


def is_number(text: str) -> bool:
    """Whether a text is a number as it is typed. Python's own reading takes `1_0`, spaces, digits
    of other scripts and NaN, too.
    """
    return _NUMBER.fullmatch(text) is not None


class _AsTyped(click.ParamType[Any]):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and not is_number(value):
            self.fail(f"{value!r} is not a valid {self.name}.", param, ctx)
        return super().convert(value, param, ctx)


class Number(_AsTyped, click.types.FloatParamType):
    """A number."""

    name = "number"


class NumberRange(_AsTyped, click.FloatRange):
    """A number in a range."""

    name = "number"


class WholeNumber(_AsTyped, click.types.IntParamType):
    """A whole number."""

    name = "whole number"


class WholeNumberRange(_AsTyped, click.IntRange):
    """A whole number in a range."""

    name = "whole number"


def number_option(*names: str, most: int, line: str, default: int | None = None) -> Decorator:
    """A whole number from 1 to `most`."""
    kind = WholeNumberRange(1, most)
    return click.option(*names, metavar="N", type=kind, default=default, help=line)
