"""The commands that say which items there are, and how they run: add, edit, rename, rm."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import click
from msgspec import UNSET

from blackboard.board import mark_now
from blackboard.cli import many
from blackboard.cli.options import (
    Chosen,
    Decorator,
    cli_command,
    completing,
    ids_argument,
    reason_option,
)
from blackboard.cli.output import few_of
from blackboard.cli.plan import differences, replanned
from blackboard.cli.session import Session, completed, confirmed
from blackboard.cli.spec_options import (
    Options,
    edited,
    parse_keys,
    parse_pairs,
    parse_value,
    spec_options,
    warn_idle_steps,
    with_times,
)
from blackboard.clock import SystemClock
from blackboard.display.escaping import one_line, shown
from blackboard.errors import AlreadyThere, BadInput, BlackboardError, NoTimeLeft
from blackboard.handlers.handler import check_type
from blackboard.inputs import check_id, check_new_id, check_size, checkpoint_text, first_of
from blackboard.model import Item, State
from blackboard.phrases import exactly, plural, stamp
from blackboard.protocol import additions, edits
from blackboard.protocol.actions import changed_fields
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.edits import check_never_ran
from blackboard.protocol.groups import check_no_pump, check_not_made
from blackboard.protocol.keys import group_of
from blackboard.protocol.members import takers, workers
from blackboard.protocol.planning import spec_of
from blackboard.protocol.rename import rename
from blackboard.spec import OF_ITS_SCHEDULE, Spec, encode_spec
from blackboard.verbs import Answer
from blackboard.why import due_words

LATE = timedelta(minutes=1)
"""A first time that is longer ago is pointed out: it may be a slip."""


def _type_option(line: str, *, required: bool = False) -> Decorator:
    return click.option(
        "--type",
        "item_type",
        required=required,
        metavar="TYPE",
        shell_complete=completing("types"),
        help=line,
    )


@cli_command("""\
Examples:
  blackboard add davis --type calendars --every 8h --set feeds=@feeds.txt
  blackboard add backup --type shell --cron "0 3 * * *" --tz Europe/Berlin \\
      --first now --set 'command=["backup.sh", "--all"]'
""")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@_type_option("The type of the handler that runs it.", required=True)
@click.option(
    "--first", metavar="now|next|WHEN", help="The first run [now for --every, else next]."
)
@spec_options
def add_command(
    *,
    chosen: Chosen,
    ids: tuple[str, ...],
    item_type: str,
    first: str | None,
    options: Options,
    pairs: tuple[str, ...],
) -> int:
    """Add items: an id, a type, when and how they run.

    The first run of an --every is now, that of any other schedule is next, unless --first or the
    type says otherwise. Options that are not given come from [types.TYPE] or from the handler.
    """
    new = [check_new_id(item_id) for item_id in dict.fromkeys(ids)]
    check_type(item_type)
    session = Session.start(chosen).with_defaults(changes=True)

    def zone_of(spec: Spec) -> str:
        return session.resolve(item_type, encode_spec(spec)).timezone

    def spec_at(now: datetime) -> Spec:
        return edited(Spec(), with_times(options, Spec(), zone_of, now), pairs=pairs)

    check_not_made(session.name)
    spec = spec_at(SystemClock().now())
    check_no_pump(session.name, item_type, session.resolve(item_type, encode_spec(spec)))
    session.check_params(item_type, spec.params)
    return completed(_add(session, new, item_type=item_type, spec_at=spec_at, first=first))


async def _add(
    session: Session,
    ids: Sequence[str],
    *,
    item_type: str,
    spec_at: Callable[[datetime], Spec],
    first: str | None,
) -> int:
    now = SystemClock().now()
    try:
        first_of(first, session.resolve(item_type, encode_spec(spec_at(now))), now)
    except NoTimeLeft:  # the store's clock decides, but no board is made for what is refused
        if not await session.has_board():
            raise
    async with session.board(create=True) as board:
        now = await board.table.now()
        spec = spec_at(now)
        check_size(spec, limit=board.table.max_value)
        tombstones = await _tombstones(board, ids)
        await _warn_unserved(session, board, item_type)
        warn_idle_steps([spec])
        when = first_of(first, board.resolve(item_type, encode_spec(spec)), now)
        new = [additions.New(id=item_id, type=item_type, spec=spec, first=when) for item_id in ids]
        added: dict[str, Item] = {}
        try:
            left = await many.add_all(
                board,
                new,
                tombstones=tombstones,
                on_added=lambda items: added.update((item.id, item) for item in items),
            )
            for item_id, problem in left.items():
                raise BadInput("add", f"{item_id}: {problem}")
        finally:
            session.wake_workers()
            now = await board.table.now()
            answers = [
                Answer(item=item, words=f"is added ({item_type}) and {_due(board, item, now)}")
                for item in (added[item_id] for item_id in ids if item_id in added)
            ]
            code = await many.print_answers(session, board, answers)
        await many.note_pause(board)
        return code


async def _tombstones(board: BoardTable, ids: Sequence[str]) -> dict[str, Item]:
    """All or none: one id that is taken refuses them all. Raises AlreadyThere."""
    tombstones = dict[str, Item]()
    for item_id in ids:
        if (item := await board.item(item_id)) is not None:
            if item.state is not State.REMOVED:
                raise AlreadyThere(item_id)
            tombstones[item_id] = item
    return tombstones


def _due(board: BoardTable, item: Item, now: datetime) -> str:
    """When an item is due, and whether that is long ago."""
    words = due_words(board, item, now)
    is_past = now - item.slot > LATE and not group_of(board.name)  # what is held has no time
    return f"{words}: its time was {exactly(item.slot, now)}" if is_past else words


@cli_command(
    """\
Examples:
  blackboard edit westlafcals --every 4h --set days=60
  blackboard edit crawl --checkpoint '{"page": 57}'
  blackboard edit "town*" --retries 2 --timeout "" --unset debug
""",
    clears=True,
)
@ids_argument()
@_type_option("Of the handler that runs it from now on.")
@click.option(
    "--first", metavar="now|next|WHEN", help="Another first run, of an item that never ran."
)
@click.option("--unset", metavar="KEY", multiple=True, help="Remove a param.")
@click.option("--checkpoint", metavar="VALUE", help='Where its next run goes on; "": at the start.')
@spec_options
@reason_option
def edit_command(
    *,
    chosen: Chosen,
    ids: tuple[str, ...],
    item_type: str | None,
    first: str | None,
    options: Options,
    pairs: tuple[str, ...],
    unset: tuple[str, ...],
    checkpoint: str | None,
) -> int:
    """Change how items are run, and print what changed. An option with "" removes the item's own
    value, so that the default of its type counts. A new schedule counts from now, also where the
    item runs. A change of until, blackout or max-runs keeps a run that is due, if the new limits
    allow it. While an item runs, its type and its checkpoint cannot be changed. With another type
    it begins without a checkpoint.
    """
    if not (options or pairs or unset or item_type or first or checkpoint is not None):
        raise BadInput("edit", "nothing to change", "give an option, --set or --unset")
    if item_type is not None:
        check_type(item_type)
    value: Any = UNSET
    if checkpoint is not None:
        value = parse_value(checkpoint, "checkpoint") if checkpoint else None
    parse_pairs(pairs)
    parse_keys(unset)
    session = Session.start(chosen).with_defaults(changes=True)
    edit = _Edit(
        session=session,
        item_type=item_type,
        options=options,
        pairs=pairs,
        unset=unset,
        first=first,
        checkpoint=value,
        now=SystemClock().now(),
    )
    warn_idle_steps([edited(Spec(), with_times(options, Spec(), lambda _: "UTC", edit.now))])
    return completed(many.change_each(session, ids, edit.change, verb="edit", check=edit.check))


@dataclass(slots=True, kw_only=True)
class _Edit:
    """An edit, the same of each item."""

    session: Session
    item_type: str | None
    """None: an item keeps its type."""
    options: Options
    pairs: Sequence[str]
    unset: Sequence[str]
    first: str | None
    checkpoint: Any
    """Where the next run of an item goes on; None: at the start; UNSET: where it went on before."""
    now: datetime
    """The time of this host, and of the store as soon as that was asked."""

    async def check(self, board: BoardTable, items: Sequence[Item]) -> None:
        """All or none: an edit that is bad input for one item changes none."""
        self.now = await board.table.now()
        if self.item_type is not None:
            await _warn_unserved(self.session, board, self.item_type)
        self._checkpoint(board)
        for item in items:
            with many.naming(item, among=items):
                self._check(board, item)

    def _check(self, board: BoardTable, item: Item) -> None:
        """Raises BadInput for a spec, params or a first time that the item cannot have. Params that
        stay as they are do not refuse an edit: the type may have others by now.
        """
        spec, of_type = self._spec(item, spec_of(item)), self.item_type or item.type
        check_size(spec, limit=board.table.max_value)
        if self.pairs or self.unset or self.item_type:
            self.session.check_params(of_type, spec.params)
        if self.first is not None:
            check_never_ran(item)
            first_of(self.first, board.resolve(of_type, encode_spec(spec)), self.now)

    async def change(self, board: BoardTable, item: Item) -> Answer:
        first = self.first
        done = await edits.edit(
            board,
            item.id,
            lambda spec, _: self._spec(item, spec),
            item_type=self.item_type,
            checkpoint=self._checkpoint(board),
            first=None if first is None else lambda settings: first_of(first, settings, self.now),
        )
        if not done.changed or done.before is None:
            return Answer(item=done.item, words="is as it was", changed=False)
        changes = "; ".join(_changes(done.before, done.item))
        due = _due(board, done.item, await board.table.now())
        return Answer(
            item=done.item,
            words=f"is changed ({changes}) and {due}",
            details=changed_fields(done.before, done.item),
        )

    def _spec(self, item: Item, spec: Spec) -> Spec:
        """The spec of an item, in place of this one."""
        of_type = self.item_type or item.type

        def zone_of(spec: Spec) -> str:
            return self.session.resolve(of_type, encode_spec(spec)).timezone

        options = with_times(self.options, spec, zone_of, self.now)
        return edited(spec, options, pairs=self.pairs, unset=self.unset)

    def _checkpoint(self, board: BoardTable) -> str | None:
        """The checkpoint as a row has it; None: an item keeps its own. Raises BadInput."""
        if self.checkpoint is UNSET:
            return None
        return checkpoint_text(self.checkpoint, limit=board.table.max_value)


async def _warn_unserved(session: Session, board: BoardTable, item_type: str) -> None:
    """Warns of a type that no worker takes, and that no jobs have here."""
    if not takers(await workers(board), item_type):
        session.warn_unknown([item_type])


def _changes(before: Item, after: Item) -> list[str]:
    """What an edit has changed; where it says no other schedule, also that of its type since."""
    changed = differences(spec_of(before), spec_of(after))
    if not {difference.field for difference in changed} & {*OF_ITS_SCHEDULE}:
        changed = [*changed, *replanned(before, after.schedule, after.timezone)]
    changes = [difference.words for difference in changed]
    if before.first != after.first and after.first:
        changes.append(f"first {stamp(before.planned)} -> {stamp(after.first)}")
    for name in ("type", "checkpoint"):
        was, becomes = getattr(before, name), getattr(after, name)
        if was != becomes:
            changes.append(f"{name} {was or '-'} -> {becomes or '-'}")
    return changes


@cli_command("""\
Example:
  blackboard rename westlafcals west-lafayette
""")
@click.argument("item_id", metavar="ID", shell_complete=completing("ids"))
@click.argument("new_id", metavar="NEW-ID")
@reason_option
def rename_command(*, chosen: Chosen, item_id: str, new_id: str) -> int:
    """Give an item another id. Its history stays with the old id; a file that declares the item is
    to be changed as well. A rename that was interrupted is finished when it is asked for again.
    """
    session = Session.start(chosen).with_defaults(changes=True)
    check_id(item_id)
    check_new_id(new_id, "new_id")

    async def work() -> int:
        async with session.board() as board:
            done = await rename(board, item_id, new_id, await mark_now(board, ""))
            if done.changed:
                session.wake_workers()
                await many.record(session, board, "rename", [item_id], detail=f"to {new_id}")
            paused = " and is paused, as it was" if done.item.is_paused else ""
            words = f"is the name of {shown(item_id)} now{paused}"
            answer = Answer(item=done.item, words=words, changed=done.changed)
            return await many.print_answers(session, board, [answer])

    return completed(work())


@cli_command("""\
Examples:
  blackboard rm westlafcals
  blackboard rm "test-*" --yes
""")
@ids_argument()
@click.option("--yes", is_flag=True, help="Do not ask before what a glob matches is removed.")
@reason_option
def rm_command(*, chosen: Chosen, ids: tuple[str, ...], yes: bool) -> int:
    """Remove items, also those whose rows cannot be read. Running ones lose their locks and are
    stopped; the history is kept as long as [board] history_age says.
    """

    async def check(_: BoardTable, items: Sequence[Item]) -> None:
        by_glob = [item for item in items if item.id not in ids]
        if by_glob and not yes and not _confirmed(by_glob):
            raise BlackboardError("nothing removed")

    async def remove(board: BoardTable, item: Item) -> Answer:
        removed = await edits.remove(board, item.id)
        words = "is removed" + (", while it was running" if item.running else "")
        words += "; its row could not be read" if removed.before is None else ""
        if item.checkpoint and group_of(board.name):
            lost = f"its checkpoint {one_line(item.checkpoint)[:60]} is lost"
            words += f"; {lost}: a pump that still names it begins it anew"
        if not removed.changed:
            words = many.GONE
        return Answer(item=removed.item, words=words, changed=removed.changed)

    session = Session.start(chosen).with_labels(ids, shown=chosen.json)
    work = many.change_each(session, ids, remove, verb="remove", check=check, damaged=True)
    return completed(work)


def _confirmed(items: Sequence[Item]) -> bool:
    removed = plural(len(items), "item")
    named = few_of([item.id for item in items])
    if not sys.stdin.isatty():
        raise BadInput("id", f"this would remove {removed}: {named}", "say so with --yes")
    return confirmed(f"Remove {removed} ({named})?")
