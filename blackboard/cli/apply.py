"""The command that makes the board what files declare: apply.

It computes a plan (`plan.py`), what to add, change and remove, from what the files declare
(`item_files.py`) and what is on the board; it prints the plan and carries it out.
"""

import sys
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import click

from blackboard.cli.item_files import (
    ItemFile,
    check_against,
    check_files,
    each_item,
    read_items,
    session_for,
)
from blackboard.cli.many import add_all, for_each, recording
from blackboard.cli.options import Chosen, cli_command, common, reason_option
from blackboard.cli.output import emit, few_of, first_of_each, note, warn, wrapped
from blackboard.cli.plan import ApplyPlan, Declaration, ItemChange, make_plan
from blackboard.cli.progress import counted
from blackboard.cli.session import Session, completed, confirmed, keeping_all
from blackboard.clock import SystemClock
from blackboard.display.layout import shown
from blackboard.errors import (
    AlreadyThere,
    BadInput,
    BadRow,
    BeingRenamed,
    BlackboardError,
    Missing,
    NoTimeLeft,
)
from blackboard.inputs import first_of
from blackboard.model import Item, State, replace
from blackboard.phrases import plural
from blackboard.protocol import additions, edits
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.groups import check_not_made
from blackboard.rules.next_run import first_slot, ready_for
from blackboard.settings import FILE_NAME
from blackboard.table import Refused
from blackboard.tables.base import MAX_VALUE

LEFT = BadRow.exit_code
"""The exit code where an item that was to be declared or changed is left as it is."""
TRIES = 20
"""The most plans of one `apply`, if other processes add or remove its items meanwhile."""


@cli_command("""\
Examples:
  blackboard apply --dry-run
  blackboard apply towns.toml feeds.toml --prune
  generate-items | blackboard apply - --source towns --prune --yes

\b
In the file:
  [[items]]
  id = "westlafcals"
  type = "calendars"
  every = "8h"
  params = { feeds = ["https://example.org/a.ics"], out = "out" }
""")
@click.argument("files", nargs=-1, type=click.Path(), metavar="[FILE]...")
@click.option("--prune", is_flag=True, help="Remove what was declared here and is not any more.")
@click.option("--source", metavar="NAME", help="What the items belong to [their file].")
@click.option("--yes", is_flag=True, help="Do not ask before items are removed.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@reason_option
@common()
def apply_command(
    *,
    chosen: Chosen,
    files: tuple[str, ...],
    prune: bool,
    source: str | None,
    yes: bool,
    dry_run: bool,
) -> int:
    """Make the board what the FILEs [blackboard.toml] declare, and say what is done; - reads the
    standard input. The second time there is nothing to do. A paused item stays paused. If one
    item is wrong, nothing is changed. A new item whose `until` has passed is left out.

    An item belongs to the file, or to the --source, by which it was declared last: --prune removes
    no others. A FILE of items alone, as `export` writes it, leaves the settings to blackboard.toml.
    """
    if source is not None and not (source.strip() and source.isprintable()):
        raise BadInput(
            "source", f"{source!r} is not a name", "a word, such as the name of a program"
        )
    with keeping_all():
        sources = _read(chosen, files, source=source, prune=prune)
        session = session_for(chosen, sources).with_defaults(changes=True)
        check_files(session, sources)
        apply = _Apply(session=session, sources=sources, prune=prune, yes=yes, dry_run=dry_run)
        return completed(apply.run())


def _read(
    chosen: Chosen, files: Sequence[str], *, source: str | None, prune: bool
) -> Sequence[ItemFile]:
    """The files. Raises BadInput where one cannot be read, or cannot be pruned by."""
    field, names = ("file", files) if files else ("config", (chosen.config or FILE_NAME,))
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInput(field, f"{twice} is given twice", "name it once")
    sources = [read_items(name, source, field=field) for name in names]
    if prune and not all(source.by for source in sources):
        remedy = "say what its items belong to: --source"
        raise BadInput("source", "--prune needs a name for what is not a file", remedy)
    if prune and (empty := next((source for source in sources if not source.declares), None)):
        problem = (
            f"{empty.file} declares no items, and --prune would remove all items of {empty.by}"
        )
        raise BadInput(field, problem, "see why; `items = []` says that there are to be none")
    return sources


@dataclass(frozen=True, slots=True, kw_only=True)
class _Apply:
    session: Session
    sources: Sequence[ItemFile]
    prune: bool
    yes: bool
    dry_run: bool

    async def run(self) -> int:
        if not await self.session.has_board():  # no board is made for a plan that is refused
            plan, now = await self._planned(None, {})
            if self.dry_run:
                self._print(plan, now)
                return 0
        async with self.session.board(create=not self.dry_run) as board:
            found = await _read_all(board)
            plan, now = await self._planned(board, found)
            self._print(plan, now)
            _warn_of_left(plan.left_alone)
            if self.prune and plan.others and not self.session.chosen.json:
                others = plural(plan.others, "item")
                note(f"{others} of other files, or added by hand: left alone")
            done = plan if self.dry_run else await self._carry_out(board, plan, found)
        asked_for = {*plan.ids, *(declaration.id for _, _, declaration in each_item(self.sources))}
        return LEFT if asked_for & done.left_alone.keys() else 0

    async def _planned(
        self, board: BoardTable | None, found: Mapping[str, Item]
    ) -> tuple[ApplyPlan, datetime]:
        """The plan for the items and tombstones that were found on the board, and when it was made;
        `board` is None where there is none yet. Raises BadInput with the line of a file.
        """
        there = {
            item_id: item for item_id, item in found.items() if item.state is not State.REMOVED
        }
        check_against(there, self.sources, limit=board.table.max_value if board else MAX_VALUE)
        now = await board.table.now() if board else SystemClock().now()
        declared = [declaration for _, _, declaration in each_item(self.sources)]
        prune = {source.by for source in self.sources} if self.prune else set()
        plan = make_plan(declared, there, prune=prune, resolve=self.session.resolve, now=now)
        plan = self._with_first(plan, now)
        if plan.add:
            check_not_made(self.session.name)
        if board is not None:
            left = additions.left_alone(board, [declaration.id for declaration in plan.add], found)
            add = [declaration for declaration in plan.add if declaration.id not in left]
            plan = replace(plan, add=add, left_alone={**plan.left_alone, **left})
        return plan, now

    def _with_first(self, plan: ApplyPlan, now: datetime) -> ApplyPlan:
        """The plan with the first runs of the items that it adds, and without items that would
        never run: a file may still declare items whose end has passed.
        """
        first, over = dict[str, datetime](), dict[str, str]()
        added, resolve = {declaration.id for declaration in plan.add}, self.session.resolve
        for source, number, declaration in each_item(self.sources):
            if declaration.id in added:
                settings = declaration.settings(resolve)
                try:
                    with source.at(number):
                        named = first_of(declaration.item.first, settings, now)
                except NoTimeLeft as none:
                    over[declaration.id] = str(none)
                    continue
                slot = first_slot(settings, first=named, now=now)
                first[declaration.id] = ready_for(
                    declaration.id, slot, settings=settings, first=True
                )
        add = [declaration for declaration in plan.add if declaration.id in first]
        return replace(plan, add=add, first=first, over=over)

    def _print(self, plan: ApplyPlan, now: datetime) -> None:
        """Print the plan for people, and ask before items are removed. Programs get it only in a
        dry run, else they get the result.
        """
        asks = bool(plan.remove) and not self.yes and not self.dry_run
        if asks:
            self._confirm(plan, now)
        for item_id, problem in plan.over.items():
            warn(f"{shown(item_id)} is not added: {problem}")
        if self.session.chosen.json:
            if self.dry_run:
                emit(plan.record() | {"dry_run": True})
        elif not asks:
            _print_lines(plan, now=now, whole=self.dry_run)
            if self.dry_run and plan.steps:
                click.echo("dry run: nothing was changed")

    def _confirm(self, plan: ApplyPlan, now: datetime, no: str = "nothing was changed") -> None:
        """Show the plan, and ask before items are removed. Raises BadInput where there is no
        terminal to ask on, BlackboardError that says `no` where that is the answer.
        """
        removed, names = plural(len(plan.remove), "item"), [item.id for item in plan.remove]
        named = few_of(names)
        if not sys.stdin.isatty():
            problem = f"this would remove {removed}: {named}"
            raise BadInput("prune", problem, "say so with --yes; --dry-run shows all")
        _print_lines(plan, now=now, err=self.session.chosen.json)
        if not confirmed(f"Remove {removed} ({named}), and do the rest?"):
            raise BlackboardError(no)

    async def _carry_out(
        self, board: BoardTable, plan: ApplyPlan, found: Mapping[str, Item]
    ) -> ApplyPlan:
        """Carry out the plan for the items that were `found`; make a new one where another process,
        such as an `apply`, was faster. Wakes the workers, records what was done, and prints it for
        programs, also when not all could be. Returns the part that was done, with the items that
        are left as they are.
        """
        made, left, current = list[ApplyPlan](), dict(plan.left_alone), plan
        try:
            for tries_left in reversed(range(TRIES)):
                try:
                    more = await self._do(board, current, found, made)
                except (AlreadyThere, Missing):
                    if not tries_left:
                        raise
                else:
                    _warn_of_left(more)
                    left |= more
                    break
                found, before = await _read_all(board), current
                current, now = await self._planned(board, found)
                _warn_of_kept(before, current, found)
                if current.remove and not self.yes:
                    self._confirm(current, now, no="nothing more was changed")
                _warn_of_left(
                    {
                        item_id: why
                        for item_id, why in current.left_alone.items()
                        if item_id not in left
                    }
                )
                left |= current.left_alone
        finally:
            whole = plan.made_of(made, left_alone=left)
            if self.session.chosen.json:
                emit(whole.record() | {"dry_run": False})
        return whole

    async def _do(
        self,
        board: BoardTable,
        plan: ApplyPlan,
        found: Mapping[str, Item],
        made: list[ApplyPlan],
    ) -> dict[str, str]:
        """Do what a plan says, and add the part of it that was done to `made`. Each item by itself,
        or many in a batch: an apply that was ended in the middle is repeated, and goes on. Returns,
        by their ids, why the others are left as they are. Raises AlreadyThere or Missing where
        others add or remove the items meanwhile.
        """
        async with recording(self.session, board, "apply", plan.ids) as done:
            try:
                left = await _add(board, plan.add, found, done.ids)
                return left | await _change_and_remove(board, plan, done.ids)
            finally:
                if done.ids:
                    made.append(plan.only(done.ids))
                    done.details.extend(made[-1].counts)


def _warn_of_left(left: Mapping[str, str]) -> None:
    for item_id, problem in left.items():
        warn(f"{shown(item_id)} is left as it is: {problem}")


def _warn_of_kept(before: ApplyPlan, plan: ApplyPlan, found: Mapping[str, Item]) -> None:
    """Warn of items that the earlier plan removes and this plan leaves as they are."""
    there = {item_id for item_id, item in found.items() if item.state is not State.REMOVED}
    there -= {item.id for item in plan.remove}
    kept = [item.id for item in before.remove if item.id in there]
    if kept:
        warn(f"not removed, as others have declared them by now: {few_of(kept)}")


async def _read_all(board: BoardTable) -> dict[str, Item]:
    """Items and tombstones, by id."""
    async with counted(board, "reading items") as through:
        return {item.id: item async for item in through.items(removed=True)}


def _print_lines(plan: ApplyPlan, *, now: datetime, whole: bool = False, err: bool = False) -> None:
    """Print the plan; the `whole` plan, or the first items that are added, changed and removed."""
    lines, kept = [*plan.lines(now)], list[str]()
    for line, more in first_of_each(lines, lambda line: line[0]):
        kept.append(line)
        if more:
            kept.append(f"{line[0]} ... and {more:,} more")
    click.echo(
        "\n".join(wrapped(line, margin="  ") for line in (lines if whole else kept)), err=err
    )


async def _add(
    board: BoardTable, declared: Sequence[Declaration], found: Mapping[str, Item], done: set[str]
) -> dict[str, str]:
    """Add items, whose tombstones are among what was `found`, and their ids to `done`."""
    now = await board.table.now()
    new = [
        additions.New(
            id=declaration.id,
            type=declaration.item.type,
            spec=declaration.spec,
            first=first_of(declaration.item.first, declaration.settings(board.resolve), now),
            declared_by=declaration.by,
        )
        for declaration in declared
    ]
    return await add_all(
        board, new, tombstones=found, on_added=lambda items: done.update(item.id for item in items)
    )


async def _change_and_remove(board: BoardTable, plan: ApplyPlan, done: set[str]) -> dict[str, str]:
    """Change and remove items, and add their ids to `done`."""
    left = dict[str, str]()

    async def each(item_id: str, work: Awaitable[object]) -> None:
        try:
            await work
        except (AlreadyThere, Missing):
            raise
        except (BadInput, BeingRenamed, ValueError) as problem:
            left[item_id] = str(problem)
        except Refused as refused:
            left[item_id] = f"the store will not take this: {refused.reason}"
        else:
            done.add(item_id)

    async def change(change: ItemChange) -> None:
        by = change.declared.by if change.declared else ""
        await each(change.id, edits.edit(board, change.id, change.spec_for, declared_by=by or None))

    async def remove(item: Item) -> None:
        await each(item.id, edits.remove(board, item.id, declared_by=item.declared_by))

    await for_each(plan.change, change, "changing")
    await for_each(plan.remove, remove, "removing")
    return left
