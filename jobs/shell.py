"""Type `shell`: runs a command, as cron does. Only where `[jobs.shell] allow = true`.

    command   the program and its arguments, a list; or text for /bin/sh, with `shell = true`
    shell     true: `command` is text that /bin/sh reads
    env       variables added to the worker's environment
    cwd       the folder to run in; by default the worker's
    timeout   "10m": an earlier end than the run's own timeout

The command has no input, its output is kept with the run, and the variables of the run are
BLACKBOARD_ITEM, BLACKBOARD_DUE, BLACKBOARD_ATTEMPT and BLACKBOARD_FENCE. It does not get the
connection string of the store. Exit code 0 is ok, any other fails the run.

All users of the host can read the arguments of a process, so no argument has the value of a
`${NAME}`: in text it is left to /bin/sh, which reads the variable from the worker's environment; in
a list it is refused. `env` passes secrets to a program. A shell script may still give secrets to
other programs as arguments.

A list never passes through a shell. A user who may write to the board may run any command as the
worker's user, and therefore nothing runs unless the worker's own settings allow it.

However a run ends, the command's process group ends with it, also processes in the background: at
a timeout, or when its worker is killed. A process that has left the group is not ended.
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from blackboard import BadInput, Context, Fail, Item, handler
from blackboard.handlers.context import unescaped, variables
from blackboard.inputs import check_names
from blackboard.runners.commands import child_environment, how_it_ended
from blackboard.schedule.times import format_duration, parse_duration

GRACE = 5.0
"""Seconds between the request to end, SIGTERM, and the end, SIGKILL, after `timeout`."""

_PARAMS = ("command", "shell", "env", "cwd", "timeout")
_LEASH = "trap '' HUP INT TERM; read -r _; kill -KILL 0"


class CommandFailed(Fail):
    """The command failed: how, in words. It is run again as `retries` says."""

    def __init__(self, how: str) -> None:
        super().__init__(how, retry=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellCommand:
    """The params of an item, checked."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path | None
    timeout: timedelta | None


@handler("shell")
def run(item: Item, ctx: Context) -> dict[str, int]:
    """Runs the item's command. Raises CommandFailed for how it ended, BadInput for its params."""
    check_names(ctx.settings, ["allow"], of="shell", where="jobs.shell.")
    if ctx.settings.get("allow") is not True:
        remedy = "allow = true under [jobs.shell] in the worker's settings file"
        raise BadInput("jobs.shell.allow", "this worker may not run commands", remedy)
    command = command_of(_unexposed(item))
    about = {
        "BLACKBOARD_ITEM": item.id,
        "BLACKBOARD_DUE": ctx.due.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "BLACKBOARD_ATTEMPT": str(ctx.attempt),
        "BLACKBOARD_FENCE": str(ctx.fence),
    }
    code = _exit_code(command, {**child_environment(os.environ), **about, **command.env})
    if code:
        raise CommandFailed(how_it_ended(code))
    return {"exit": 0}


def _unexposed(item: Item) -> Mapping[str, Any]:
    """The item's params, with no value of the worker's environment in `command`."""
    written = (item.written or {}).get("command")
    match written:
        case str():
            return {**item.params, "command": unescaped(written)}
        case list():
            for n, one in enumerate(written):
                for name in sorted(variables(one)):
                    problem = f"${{{name}}} would show in the list of processes"
                    remedy = f'env = {{ {name} = "${{{name}}}" }} hands it over unseen'
                    raise BadInput(f"command[{n}]", problem, remedy)
    return dict(item.params)


def command_of(params: Mapping[str, Any]) -> ShellCommand:
    """Raises BadInput naming the param."""
    check_names(params, _PARAMS, of="shell")
    timeout = params.get("timeout")
    return ShellCommand(
        argv=_argv(params.get("command"), shell=params.get("shell", False)),
        env=_env(params.get("env", {})),
        cwd=_cwd(params.get("cwd")),
        timeout=None if timeout is None else parse_duration(timeout, "timeout"),
    )


def _argv(command: Any, *, shell: Any) -> tuple[str, ...]:
    if not isinstance(shell, bool):
        raise BadInput("shell", f"{shell!r} is neither true nor false")
    match command:
        case str() if shell:
            argv: tuple[str, ...] = ("/bin/sh", "-c", _text("command", command))
        case str():
            remedy = "a list of program and arguments; or shell = true, and /bin/sh reads the text"
            raise BadInput("command", "is text", remedy)
        case list() if shell:
            raise BadInput("shell", "a list never passes through a shell", "leave shell out")
        case list():
            argv = tuple(_text(f"command[{n}]", one) for n, one in enumerate(command))
        case _:
            raise BadInput("command", "is missing or no list", 'such as ["rsync", "-a", "x", "y"]')
    if not argv or not argv[-1 if shell else 0].strip():
        raise BadInput("command", "is empty", 'such as ["rsync", "-a", "x", "y"]')
    return argv


def _env(env: Any) -> Mapping[str, str]:
    if not isinstance(env, Mapping):
        raise BadInput("env", f"{env!r} is no table of variables", '{ LANG = "C" }')
    for name, value in env.items():
        _text(f"env.{name}", value)
        if not _text("env", name) or "=" in name:
            raise BadInput("env", f"{name!r} is no name of a variable")
    return env


def _cwd(cwd: Any) -> Path | None:
    if cwd is None:
        return None
    folder = Path(_text("cwd", cwd))
    if not folder.is_dir():
        raise BadInput("cwd", f"there is no folder {cwd!r} where this worker runs")
    return folder


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadInput(field, f"{value!r} is not text", "put it in quotes")
    if "\0" in value:
        raise BadInput(field, "holds a NUL character, which no program can be given")
    return value


def _exit_code(command: ShellCommand, env: Mapping[str, str]) -> int:
    with _process_group() as group:
        try:
            process = subprocess.Popen(  # noqa: S603 - running commands is what was allowed
                command.argv,
                stdin=subprocess.DEVNULL,
                cwd=command.cwd,
                env=env,
                process_group=group,
            )
        except OSError as problem:
            raise BadInput(
                "command", f"cannot run {command.argv[0]!r}: {problem.strerror}"
            ) from None
        try:
            return _wait(process, command.timeout, group)
        finally:
            process.kill()  # it may have left its group
            process.wait()


def _wait(process: subprocess.Popen[bytes], timeout: timedelta | None, group: int) -> int:
    if timeout is None:
        return process.wait()
    try:
        return process.wait(timeout.total_seconds())
    except subprocess.TimeoutExpired:
        ending = CommandFailed(f"stopped after its timeout of {format_duration(timeout)}")
    os.killpg(group, signal.SIGTERM)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        ending.add_note(f"it did not end within {GRACE:g} s of SIGTERM and was killed")
    raise ending


@contextmanager
def _process_group() -> Iterator[int]:
    """A process group that ends with the block, and with this process, however either ends.

    Its leader is a shell that waits for the other end of a pipe to close, which the system does
    even for a process that is killed. While the leader is not reaped, no other group can get its
    number.
    """
    leash = subprocess.Popen(  # noqa: S603 - a constant
        ("/bin/sh", "-c", _LEASH),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    with leash:
        try:
            yield leash.pid
        finally:
            os.killpg(leash.pid, signal.SIGKILL)
