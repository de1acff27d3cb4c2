"""The commands that write items as a file: `export`, those of a board; `import-crontab`, those of a
crontab (`blackboard/crontab.py`).
"""

import asyncio
import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from blackboard.cli.options import Chosen, cli_command, completing, ids_argument
from blackboard.cli.output import emit, emit_toml, few_of, note, warn
from blackboard.cli.progress import reading
from blackboard.cli.session import Session
from blackboard.crontab import TAKE_ONE, Crontab, zone_of_host
from blackboard.display.escaping import shown
from blackboard.display.item_queries import select
from blackboard.display.toml_text import lines_of
from blackboard.errors import BadInput, BadSpec, NoTimeLeft
from blackboard.inputs import check_params_size, first_of
from blackboard.model import Item, State
from blackboard.named_files import read_bytes
from blackboard.phrases import iso, plural
from blackboard.protocol.board_table import Resolve
from blackboard.protocol.planning import spec_of
from blackboard.schedule.cron import idle_steps
from blackboard.schedule.zones import find_zone
from blackboard.settings import ItemTable, check_item
from blackboard.spec import unknown_fields


@cli_command("""\
Examples:
  blackboard export > items.toml
  blackboard --board copy apply items.toml
  blackboard export "town*" --json
""")
@ids_argument(required=False)
def export_command(*, chosen: Chosen, ids: tuple[str, ...]) -> int:
    """Write items as TOML that `apply` reads back: their declarations, without their state. On
    another board those that are done or paused here run: a warning names them. Items that cannot
    be read, or that `apply` would refuse, are left out with a warning, and exit code 1.
    """
    session = Session.start(chosen).with_labels(ids)

    async def read() -> tuple[list[Item], datetime, bool]:
        async with reading(session.board(), "reading items") as board:
            if ids:
                chosen_items = await select(board, ids, exact=chosen.exact)
            else:
                every = [item async for item in board.items()]
                chosen_items = sorted(every, key=lambda item: item.id)  # whatever the shards are
            return chosen_items, await board.table.now(), not board.unreadable and not board.newer

    chosen_items, now, is_whole = asyncio.run(read())
    items = [item for item in chosen_items if _can_be_declared(item)]
    if chosen.json:
        emit([declared(item) for item in items])
    else:
        emit_toml("\n".join(item_text(declared(item)) for item in items))
    resolve = session.resolve  # one for all, which caches what it has resolved
    for item in items:
        if unknown := unknown_fields(item.spec):
            names = few_of([*unknown])
            warn(f"{shown(item.id)} is written without what a newer version added: {names}")
        try:
            resolve(item.type, item.spec)
        except BadInput as bad:  # its blackout may be a calendar that these do not have
            problem = shown(str(bad))
            warn(f"{shown(item.id)} is written, but does not fit the settings here: {problem}")
    for state in (State.DONE, State.PAUSED):
        in_state = [item for item in items if item.state is state]
        if lost := [item.id for item in in_state if not _is_over(item, resolve, now)]:
            which = f"{plural(len(lost), 'item')} {'are' if len(lost) > 1 else 'is'} {state.value}"
            words = "would run on a board that this is applied to"
            warn(f"{which} and {words}: {few_of(lost)}")
    return int(not is_whole or len(items) < len(chosen_items))


def _can_be_declared(item: Item) -> bool:
    """Whether `apply` takes what is written of an item; else warns that it is left out."""
    try:
        table = msgspec.convert(declared(item), ItemTable)
        check_item(table)
        check_params_size(table.params)
    except BadSpec as bad:
        warn(f"{shown(item.id)} is left out: its spec cannot be read: {bad.problem}")
    except BadInput as bad:
        warn(f"{shown(item.id)} is left out: {shown(str(bad))}")
    else:
        return True
    return False


def _is_over(item: Item, resolve: Resolve, now: datetime) -> bool:
    """Whether its end has passed: `apply` leaves it out, where the board does not have it."""
    with suppress(BadInput, ValueError):  # of settings that are not known here
        try:
            first_of(None, resolve(item.type, item.spec), now)
        except NoTimeLeft:
            return item.state is State.DONE
    return False


def declared(item: Item) -> dict[str, Any]:
    """An item as a file declares it, with the first time that was named for it as long as that is
    to come.
    """
    is_to_come = item.first is not None and item.runs == 0 and item.waits
    first = {"first": iso(item.first)} if is_to_come and item.planned == item.first else {}
    return {"id": item.id, "type": item.type, **first, **msgspec.to_builtins(spec_of(item))}


def item_text(item: dict[str, Any]) -> str:
    """An item as one `[[items]]` of a file; its params as a table of their own."""
    plain = {key: value for key, value in item.items() if key != "params"}
    lines = ["[[items]]", *lines_of(plain)]
    if item.get("params"):
        lines += ["[items.params]", *lines_of(item["params"])]
    return "\n".join(lines) + "\n"


# ---- from a crontab

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
        numbers: dict[str, list[str]] = {}
        for number, problem in sorted(crontab.problems.items()):
            numbers.setdefault(problem, []).append(str(number))
        for problem, of_problem in numbers.items():
            note(f"{file}:{','.join(of_problem)}: {problem}")
        return 2
    if users:
        begins = f"what may be a user begins a command ({', '.join(map(repr, users[:3]))})"
        warn(f"{file}: {begins}: if so, {TAKE_ONE}")
    _warn_of_meanings(crontab, file)
    if chosen.json:
        emit(crontab.items)
    else:
        head = HEAD.format(file="a crontab" if file == "-" else shown(file), zone=zone)
        emit_toml("\n".join([head, *map(item_text, crontab.items)]))
    return 0


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


def _warn_of_meanings(crontab: Crontab, file: str) -> None:
    """Warns of what may be meant otherwise than it is taken."""
    zones = [(item["params"].get("env", {}).get("TZ"), item["timezone"]) for item in crontab.items]
    for name in dict.fromkeys(name for name, of_times in zones if name not in {None, of_times}):
        words = f"TZ={name} is a variable of the commands"
        warn(f"{file}: {words}, and not the zone of their times: for that write CRON_TZ")
    if crontab.doubled:
        words = r"`\\` in a command is a `\`, as to Debian's cron; to cronie it is both"
        numbers = [*map(str, crontab.doubled[:3]), *["..."] * bool(crontab.doubled[3:])]
        warn(f"{file}:{', '.join(numbers)}: {words}")
    for item in crontab.items:
        if words := idle_steps(item["cron"]):
            warn(f"{shown(item['id'])}: {words}")
