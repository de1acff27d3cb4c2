"""`blackboard import-crontab`: writes the items of a crontab (`blackboard/crontab.py`) as TOML."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from blackboard.cli.export import item_text
from blackboard.cli.options import Chosen, cli_command, completing
from blackboard.cli.output import emit, emit_toml, note, warn
from blackboard.crontab import TAKE_ONE, Crontab, zone_of_host
from blackboard.display.escaping import shown
from blackboard.errors import BadInput
from blackboard.named_files import read_bytes
from blackboard.phrases import plural
from blackboard.schedule.cron import idle_steps
from blackboard.schedule.zones import find_zone

HEAD = """\
# Items of {file}, for `blackboard apply`. Where CRON_TZ names no zone, times are those of {zone}.
# Workers run them where blackboard.toml has
#
#   [board]
#   jobs = ["shell"]
#   [jobs.shell]
#   allow = true
#
# as their own user, in their own folder and with their own PATH, where env does not say otherwise.
# A run that lasts longer than from one time to the next is stopped (timeout = "1h": after an hour).
# A time that passed while no worker was there is made up for by one run (missed = "none": it is
# not). Notices carry the output of a run that fails: docs/notify.md.
"""
SYSTEM = re.compile(r"/etc/(?:crontab|cron\.d/[^/]+)")
"""Paths of crontabs whose lines name a user."""


@cli_command("""\
Examples:
  crontab -l | blackboard import-crontab - > crontab.toml
  blackboard import-crontab my.crontab --tz Europe/Berlin > crontab.toml
  blackboard apply crontab.toml --dry-run
""")
@click.argument("file", type=click.Path())
@click.option(
    "--tz",
    metavar="ZONE",
    shell_complete=completing("zones"),
    help="For lines without CRON_TZ [this host's].",
)
@click.option(
    "--user",
    metavar="NAME",
    help="For a crontab of the system, whose lines name a user: take the lines of this one.",
)
def import_crontab_command(*, chosen: Chosen, file: str, tz: str | None, user: str | None) -> int:
    """Write the lines of a crontab as items that `apply` reads; - is the standard input. The id and
    the description of an item come from the comment right above its line; without one, the id is
    the name of what it runs. MAILTO becomes the owner. If a line cannot be taken, the file is
    refused: all such lines are named.
    """
    zone, doubt = (find_zone(tz).key, "") if tz else zone_of_host()
    if doubt:
        warn(f"{doubt}; --tz names another")
    crontab = Crontab(zone, user or "")
    data = read_bytes(None if file == "-" else Path(file), field="file")
    crontab.read(data.decode("utf-8-sig", "surrogateescape"))  # a byte that is not UTF-8 stays
    system = file != "-" and SYSTEM.fullmatch(str(Path(file).absolute())) is not None
    users = [] if user else crontab.check_users(system=system)
    _warn_of_left(crontab, file)
    if crontab.problems:
        for problem, numbers in _by_problem(crontab.problems).items():
            note(f"{file}:{','.join(map(str, numbers))}: {problem}")
        return 2
    _warn_of_meanings(crontab, file, users)
    if chosen.json:
        emit(crontab.items)
    else:
        emit_toml("\n".join(_lines(crontab.items, file=file, zone=zone)))
    return 0


def _lines(items: Sequence[dict[str, Any]], *, file: str, zone: str) -> Iterator[str]:
    yield HEAD.format(file="a crontab" if file == "-" else shown(file), zone=zone)
    for item in items:
        yield item_text(item)


def _by_problem(problems: Mapping[int, str]) -> dict[str, list[int]]:
    """The numbers of the lines that each problem is of, those of the first line first."""
    lines: dict[str, list[int]] = {}
    for number, problem in sorted(problems.items()):
        lines.setdefault(problem, []).append(number)
    return lines


def _warn_of_left(crontab: Crontab, file: str) -> None:
    """Warns of the lines that are no items. Raises BadInput where all are of other users."""
    if crontab.others:
        names = ", ".join(sorted(set(crontab.others)))
        if not (crontab.items or crontab.left_out or crontab.problems):
            problem = f"no line of {file} is of {crontab.user!r}: the sixth words are {names}"
            raise BadInput("user", problem, "leave --user out where lines name no user")
        warn(f"{file}: left out are {plural(len(crontab.others), 'line')} of other users ({names})")
    for line in crontab.left_out:
        warn(f"{file}:{line}")


def _warn_of_meanings(crontab: Crontab, file: str, users: Sequence[str]) -> None:
    """Warns of what may be meant otherwise than it is taken. `users` are what may be some."""
    if users:
        words = _some([repr(name) for name in users])
        warn(f"{file}: what may be a user begins a command ({words}): if so, {TAKE_ONE}")
    zones = [(item["params"].get("env", {}).get("TZ"), item["timezone"]) for item in crontab.items]
    for name in dict.fromkeys(name for name, of_times in zones if name not in {None, of_times}):
        words = f"TZ={name} is a variable of the commands"
        warn(f"{file}: {words}, and not the zone of their times: for that write CRON_TZ")
    if crontab.doubled:
        words = r"`\\` in a command is a `\`, as to Debian's cron; to cronie it is both"
        warn(f"{file}:{_some([str(number) for number in crontab.doubled])}: {words}")
    for item in crontab.items:
        if words := idle_steps(item["cron"]):
            warn(f"{shown(item['id'])}: {words}")


def _some(words: Sequence[str]) -> str:
    return ", ".join([*words[:3], *["..."] * bool(words[3:])])
