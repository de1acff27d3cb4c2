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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from blackboard import BadInput, Context, Fail, Item, handler
from blackboard.handlers.context import unescaped, variables
from blackboard.inputs import check_names
from blackboard.phrases import iso
from blackboard.runners.commands import child_environment, how_it_ended
from blackboard.schedule.times import format_duration, parse_duration

GRACE = 5.0
"""Seconds between the request to end, SIGTERM, and the end, SIGKILL, after `timeout`."""

_LEASH = "trap '' HUP INT TERM; read -r _; kill -KILL 0"


class CommandFailed(Fail):
    """The command failed: how, in words. It is run again as `retries` says."""

    def __init__(self, how: str) -> None:
        super().__init__(how, retry=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellParams:
    """The params of an item. Raises BadInput naming the one that cannot be used."""

    command: list[str] | str
    shell: bool = False
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    timeout: str | None = None

    def __post_init__(self) -> None:
        such_as = 'such as ["rsync", "-a", "x", "y"]'
        if isinstance(self.command, str) and not self.shell:
            remedy = "a list of program and arguments; or shell = true, and /bin/sh reads the text"
            raise BadInput("params.command", "is text", remedy)
        if not isinstance(self.command, str) and self.shell:
            problem = "a list never passes through a shell"
            raise BadInput("params.shell", problem, "leave shell out")
        program = self.command if isinstance(self.command, str) else "".join(self.command[:1])
        if not program.strip():
            raise BadInput("params.command", "is empty", such_as)
        if any("\0" in one for one in (*self.command, *self.env, *self.env.values())):
            raise BadInput("params", "a NUL is nothing that a program can be given", "leave it out")
        for name in self.env:
            if not name or "=" in name:
                raise BadInput("params.env", f"{name!r} is not a name of a variable")
        if self.timeout is not None:
            parse_duration(self.timeout, "params.timeout")


@handler("shell", params=ShellParams)
def run(item: Item, ctx: Context) -> dict[str, int]:
    """Runs the item's command. Raises CommandFailed for how it ended, BadInput for what this worker
    cannot run.
    """
    check_names(ctx.settings, ["allow"], of="shell", where="jobs.shell.")
    if ctx.settings.get("allow") is not True:
        remedy = "allow = true under [jobs.shell] in the worker's settings file"
        raise BadInput("jobs.shell.allow", "this worker may not run commands", remedy)
    params: ShellParams = item.params
    if params.cwd is not None and not Path(params.cwd).is_dir():
        problem = f"there is no folder {params.cwd!r} where this worker runs"
        raise BadInput("params.cwd", problem)
    about = {
        "BLACKBOARD_ITEM": item.id.replace("\0", ""),  # which no variable can have
        "BLACKBOARD_DUE": iso(ctx.due),
        "BLACKBOARD_ATTEMPT": str(ctx.attempt),
        "BLACKBOARD_FENCE": str(ctx.fence),
    }
    env = {**child_environment(os.environ), **about, **params.env}
    timeout = None if params.timeout is None else parse_duration(params.timeout, "timeout")
    code = _exit_code(_argv(params, item.written or {}), env, cwd=params.cwd, timeout=timeout)
    if code:
        raise CommandFailed(how_it_ended(code))
    return {"exit": 0}


def _argv(params: ShellParams, written: Mapping[str, Any]) -> Sequence[str]:
    """The arguments, with no value of the worker's environment in them. `written` are the params
    with `${NAME}`, if they have any. Raises BadInput.
    """
    if isinstance(params.command, str):
        return "/bin/sh", "-c", unescaped(written["command"]) if written else params.command
    for number, one in enumerate(written.get("command", ())):
        for name in sorted(variables(one)):
            problem = f"${{{name}}} would show in the list of processes"
            remedy = f'env = {{ {name} = "${{{name}}}" }} hands it over unseen'
            raise BadInput(f"params.command[{number}]", problem, remedy)
    return params.command


def _exit_code(
    argv: Sequence[str], env: Mapping[str, str], *, cwd: str | None, timeout: timedelta | None
) -> int:
    with _process_group() as group:
        try:
            process = subprocess.Popen(  # noqa: S603 - running commands is what was allowed
                argv, stdin=subprocess.DEVNULL, cwd=cwd, env=env, process_group=group
            )
        except OSError as problem:
            words = f"cannot run {argv[0]!r}: {problem.strerror}"
            raise BadInput("params.command", words) from None
        try:
            return _wait(process, timeout, group)
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
