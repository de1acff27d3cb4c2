"""The command line: each command is a module, which is imported when it is called.

Exit codes: 0 done, 1 the answer is no, 2 bad input or a store that cannot be used, 3 the store does
not answer, 130 interrupted, 141 nothing reads the output any more.
`blackboard --help` answers before asyncio or msgspec are imported: imports here are cheap ones.
"""

import errno
import os
import signal
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, TextIO

import click

from blackboard import __version__
from blackboard.cli.options import Chosen, as_typed, common
from blackboard.cli.streams import NOT_WRITTEN, UNREAD, flushed, open_streams
from blackboard.display.escaping import one_line
from blackboard.errors import BlackboardError, lacking_package
from blackboard.runners.interpreter import reset_signals

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

INTERRUPTED = "interrupted", 130
_OF_OUTPUT = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}

COMMANDS = {
    "init": "make a board",
    "demo": "watch two workers, sixteen towns and a kill, in a minute",
    "add": "add items",
    "apply": "make the board what blackboard.toml declares",
    "export": "write the board's items as TOML",
    "import-crontab": "write the lines of a crontab as items",
    "edit": "change items",
    "rm": "remove items",
    "show": "the board",
    "status": "the board in one screen: counts, workers, coordinator",
    "log": "the runs of items, newest first",
    "next": "when items, or a schedule, are due next",
    "report": "what the last run of an item wrote about its work",
    "why": "the decision for an item now, and its reasons",
    "run": "run items now",
    "cancel": "end running runs",
    "rename": "give an item another id",
    "pause": "start no more runs of items",
    "resume": "undo a pause",
    "ack": "let `check` pass over a failure",
    "unlock": "take the lock of a running item from its holder",
    "types": "the types of the jobs: defaults, params, where they are defined",
    "worker": "walk the board and run what is due",
    "workers": "the workers that have announced themselves",
    "leases": "who holds the partitions that pumps serve",
    "leader": "who leads the elections of the board",
    "serve": "the board in a browser",
    "check": "exit 1 if anything is overdue, stale or failing",
    "notify": "see whether notices arrive",
    "doctor": "check every row of the board; mend what is safe",
    "cost": "requests and bill of the board in a month",
    "bench": "measure how fast the store is for boards",
    "simulate": "what the board would do, how late and at what price",
    "azurite": "start an emulator of Azure Table Storage",
}
MODULES = {
    **dict.fromkeys(("add", "edit", "rm", "rename"), "items"),
    **dict.fromkeys(("pause", "resume", "cancel", "ack", "unlock"), "verbs"),
    **dict.fromkeys(("workers", "leader", "leases"), "listing"),
}
"""Commands that share a module; each other command has a module of its own name."""

SYNONYMS = {
    "add": "create new",
    "apply": "sync",
    "cancel": "kill stop",
    "check": "healthcheck probe",
    "edit": "change modify set update",
    "log": "history logs runs tail",
    "next": "schedule schedules upcoming",
    "rm": "del delete remove",
    "run": "exec execute trigger",
    "serve": "dashboard server ui web",
    "show": "items jobs list ls ps",
    "types": "handlers",
    "why": "describe explain",
    "worker": "start up work",
    "--at": "--once --when",
    "--every": "--interval --schedule",
    "--jobs": "--handlers --module",
    "--listen": "--address --bind --host --port",
    "--processes": "--workers",
    "--set": "--arg --args --param --params",
    "--slots": "--concurrency --threads",
    "--stale-after": "--lease --ttl",
    "--store": "--database --db --url",
    "--tags": "--labels --tag",
}
"""Commands and options, and the words that people type for them who know other tools."""
MEANT = {word: name for name, words in SYNONYMS.items() for word in words.split()}

COMPLETE = "_BLACKBOARD_COMPLETE"
"""The variable by which a shell asks for its script, and for what fits."""

EPILOG = """\b
Examples:
  blackboard init
  blackboard add davis --type calendars --every 8h --set feeds=@feeds.txt
  blackboard worker --jobs calendars

\b
`blackboard COMMAND --help` has an example of each. Completion of commands,
options and ids in bash (zsh and fish likewise):
  eval "$(_BLACKBOARD_COMPLETE=bash_source blackboard)"
"""


class LazyGroup(click.Group):
    """Lists its commands by name and one line, and imports a command only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        module = import_module(f"blackboard.cli.{MODULES.get(name, name)}")
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as `__main__` has set it
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command = getattr(module, f"{name}_command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and args[0][:1].isalnum() and not ctx.resilient_parsing:
            raise click.exceptions.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only when asked

        names = [
            CompletionItem(name, help=line)
            for name, line in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
)
@common()
@click.version_option(__version__, package_name="blackboard-scheduler")
@click.pass_context
def group(ctx: click.Context, chosen: Chosen) -> None:
    """A cron-style job scheduler with no server: a table of items, and workers that claim what
    is due.
    """
    ctx.obj = chosen


def main() -> None:
    """The console script."""
    code = 1
    reset_signals([signal.SIGCHLD])  # not SIGHUP and others, which `nohup` and shells ignore
    if os.getpid() == 1:
        _end_when_asked()
    streams = open_streams()
    try:
        code = called()
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    finally:
        _leave_threads(code, streams)
    sys.exit(flushed(code, streams))


def _end_when_asked() -> None:
    """Lets SIGTERM and SIGHUP end this process at once until a command handles them. The kernel
    does so by itself, except to process 1 of a container.
    """
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is signal.SIG_DFL:
            signal.signal(ending, lambda number, _frame: os._exit(128 + number))


def _leave_threads(code: int, streams: tuple[TextIO, TextIO]) -> None:
    """Ends this process at once, with this exit code, if handlers have left threads behind, for
    which Python would wait. An exception that is being handled is printed first.
    """
    import threading  # noqa: PLC0415 - not for --help

    this = threading.current_thread()
    if all(thread.daemon or thread is this for thread in threading.enumerate()):
        return
    problem = sys.exc_info()[1]
    if problem is not None:
        sys.excepthook(type(problem), problem, problem.__traceback__)
    os._exit(flushed(code, streams))


def called(args: list[str] | None = None) -> int:
    """Runs one command line: its exit code. Errors are one line on stderr, never a traceback."""
    try:
        if instruction := os.environ.get(COMPLETE):
            return _complete(instruction)
        result = _invoked([*(sys.argv[1:] if args is None else args)])
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt) as end:
        if isinstance(end, KeyboardInterrupt):
            _print("")  # below the ^C of a terminal
        warnings.simplefilter("ignore")  # of coroutines that were made, and could not begin
        return _failed(*INTERRUPTED)
    except click.ClickException as error:
        return _failed(_usage(error), error.exit_code)
    except BlackboardError as error:
        return _failed(as_typed(str(error)), error.exit_code)
    except Exception as error:
        if (failure := _failure(error)) is None:
            raise
        message, code = failure
        return _failed(as_typed(message), code)
    return result if isinstance(result, int) else 0


def _invoked(words: list[str]) -> object:
    """What a command returns, or the exit code with which it ends itself."""
    try:
        with group.make_context("blackboard", words) as context:
            return group.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except BrokenPipeError:  # nothing reads the output any more
        return UNREAD


def _complete(instruction: str) -> int:
    """Answers a shell: its script, or what fits."""
    from click.shell_completion import shell_complete  # noqa: PLC0415 - only when asked

    import_module("blackboard.cli.bash_completion")
    return shell_complete(group, {}, "blackboard", COMPLETE, instruction)


def _failure(error: Exception) -> tuple[str, int] | None:
    """The message and the exit code of an error; None for an unexpected one."""
    if isinstance(error.__cause__, KeyboardInterrupt):  # Python 3.11: during an import
        return INTERRUPTED
    lacking = _lacking(error)
    if lacking:  # so the import below might fail as well
        return f"this process may not have more {lacking}", 2
    if isinstance(error, ModuleNotFoundError) and (problem := lacking_package(error)):
        return problem, 2
    if isinstance(error, EOFError) and "marshal" in str(error):
        remedy = "remove the folders __pycache__ beside the modules that are imported"
        return f"a compiled module is cut off, as on a full disk ({remedy})", 2
    from blackboard.table import Refused, TableError, Unusable  # noqa: PLC0415 - not for --help

    match error:
        case Refused():
            return f"the store will not take this: {error.reason}", 2
        case Unusable():
            return str(error), 2
        case TableError():
            return f"store: {error}", 3
        case UnicodeEncodeError(encoding=encoding):
            problem = f"the output cannot be written in {encoding} (set PYTHONIOENCODING=utf-8)"
            return problem, NOT_WRITTEN
        case OSError(errno=number, filename=None) if number in _OF_OUTPUT:
            reason = "it is closed" if number == errno.EBADF else error.strerror
            problem = f"{reason} (what was asked for may be done)"
            return f"the output cannot be written: {problem}", NOT_WRITTEN
    return None


def _lacking(error: BaseException) -> str:
    """The resource that the system refused, and where it is limited; "" for another error."""
    match error:
        case OSError(errno=errno.EMFILE | errno.ENFILE):
            return "open files (`ulimit -n`)"
        case BlockingIOError():  # of a fork: no stream or file here is non-blocking
            return "processes (`ulimit -u`, or the limit of its container)"
        case MemoryError() | OSError(errno=errno.ENOMEM):
            return "memory (`ulimit -v`, or the limit of its container)"
        case ImportError(msg=message) if "failed to map segment" in message:
            return "memory (`ulimit -v`, or the limit of its container)"
        case RuntimeError(args=["can't start new thread", *_]):
            return "threads (`ulimit -u`), or memory for them (`ulimit -v`)"
    return ""


def _usage(error: click.ClickException) -> str:
    """What is wrong, and where the right usage is to be read."""
    message = error.format_message()
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return message
    meant = _meant(error, error.ctx.command)
    if meant:
        message = f"{error.message} Did you mean {meant!r}?"
    takes_any = any(isinstance(param, click.Argument) for param in error.ctx.command.params)
    if isinstance(error, click.NoSuchOption) and takes_any and not meant:
        message += " An argument that begins with - stands after --."
    return f"{message} See `{error.ctx.command_path} --help`."


def _meant(error: click.UsageError, command: click.Command) -> str:
    """The command or the option of that command that is meant by another word; "": none."""
    match error:
        case click.exceptions.NoSuchCommand(command_name=word):
            return MEANT.get(word, "")
        case click.NoSuchOption(option_name=word):
            meant = MEANT.get(word, "")
            return meant if any(meant in param.opts for param in command.params) else ""
    return ""


def _failed(message: str, code: int) -> int:
    _print(f"blackboard: {one_line(message)}")
    return code


def _print(line: str) -> None:
    with suppress(OSError):
        click.echo(line, err=True)
