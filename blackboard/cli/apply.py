"""The command that makes the board what files declare: apply.

What the files declare (`declarations.py`) and what is on the board make a plan (`plan.py`): what to
add, change and remove. It is printed and carried out.
"""

import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

import click

from blackboard.cli import declarations
from blackboard.cli.many import add_all, for_each, recording
from blackboard.cli.options import Chosen, cli_command, reason_option
from blackboard.cli.output import emit, few_of, first_of_each, note, warn, wrapped
from blackboard.cli.plan import ApplyPlan, ItemChange, make_plan
from blackboard.cli.progress import counted
from blackboard.cli.session import Session, completed, confirmed, gc_disabled
from blackboard.clock import SystemClock
from blackboard.display.escaping import shown
from blackboard.errors import AlreadyThere, BadInput, BadRow, BeingRenamed, BlackboardError, Missing
from blackboard.inputs import first_of
from blackboard.model import Item, State, replace
from blackboard.phrases import plural
from blackboard.protocol import additions, edits
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.groups import check_not_made
from blackboard.settings import FILE_NAME
from blackboard.table import Refused
from blackboard.tables.base import MAX_VALUE

LEFT = BadRow.exit_code
"""The exit code where an item that was to be declared or changed is left as it is."""
MEANWHILE = (AlreadyThere, Missing)
"""What is raised where other processes add or remove the items of a plan meanwhile."""
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
    with gc_disabled():
        item_files = _read(chosen, files, source=source, prune=prune)
        declared = [each for file in item_files for each in file.declarations]
        session = declarations.session_for(chosen, item_files).with_defaults(changes=True)
        declarations.check_declared(session, declared)
        apply = _Apply(
            session=session,
            declared=declared,
            prune={file.by for file in item_files} if prune else set(),
            yes=yes,
            dry_run=dry_run,
        )
        return completed(apply.run())


def _read(
    chosen: Chosen, names: Sequence[str], *, source: str | None, prune: bool
) -> Sequence[declarations.ItemFile]:
    """The files. Raises BadInput where one cannot be read, or cannot be pruned by."""
    field, names = ("file", names) if names else ("config", (chosen.config or FILE_NAME,))
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInput(field, f"{twice} is given twice", "name it once")
    files = [declarations.read_file(name, source, field=field) for name in names]
    if prune and not all(file.by for file in files):
        remedy = "say what its items belong to: --source"
        raise BadInput("source", "--prune needs a name for what is not a file", remedy)
    if prune and (empty := next((file for file in files if not file.declares), None)):
        problem = (
            f"{empty.path} declares no items, and --prune would remove all items of {empty.by}"
        )
        raise BadInput(field, problem, "see why; `items = []` says that there are to be none")
    return files


@dataclass(frozen=True, slots=True, kw_only=True)
class _Apply:
    session: Session
    declared: Sequence[declarations.Declaration]
    prune: Collection[str]
    """The files and sources whose items are removed where they are not declared."""
    yes: bool
    dry_run: bool
    _parts: list[ApplyPlan] = field(default_factory=list)
    """What was done of each plan that was carried out."""
    _left: dict[str, str] = field(default_factory=dict)
    """The items that are left as they are, each with the reason."""

    async def run(self) -> int:
        if not await self.session.has_board():  # no board is made for a plan that is refused
            plan = self._plan({}, now=SystemClock().now(), limit=MAX_VALUE)
            if self.dry_run:
                self._print(plan)
                return 0
        async with self.session.board(create=not self.dry_run) as board:
            plan = await self._planned(board)
            self._print(plan)
            self._leave(plan.left_alone)
            if self.prune and plan.others and not self.session.chosen.json:
                others = plural(plan.others, "item")
                note(f"{others} of other files, or added by hand: left alone")
            if not self.dry_run:
                await self._carry_out(board, plan)
        asked_for = {*plan.ids, *(declaration.id for declaration in self.declared)}
        return LEFT if asked_for & self._left.keys() else 0

    def _plan(self, items: Mapping[str, Item], *, now: datetime, limit: int) -> ApplyPlan:
        """The plan for the items of a board. Raises BadInput with the line of a file."""
        declarations.check_against(items, self.declared, limit=limit)
        plan = make_plan(
            self.declared, items, prune=self.prune, resolve=self.session.resolve, now=now
        )
        if plan.add:
            check_not_made(self.session.name)
        return plan

    async def _planned(self, board: BoardTable) -> ApplyPlan:
        items, tombstones = dict[str, Item](), dict[str, Item]()
        async with counted(board, "reading items") as through:
            async for item in through.items(removed=True):
                (tombstones if item.state is State.REMOVED else items)[item.id] = item
        plan = self._plan(items, now=await board.table.now(), limit=board.table.max_value)
        left = additions.left_alone(board, [addition.id for addition in plan.add], tombstones)
        return replace(
            plan,
            add=[addition for addition in plan.add if addition.id not in left],
            left_alone={**plan.left_alone, **left},
            tombstones=tombstones,
        )

    def _print(self, plan: ApplyPlan) -> None:
        """Print the plan for people, and ask before items are removed. Programs get it only in a
        dry run, else they get the result.
        """
        asks = bool(plan.remove) and not self.yes and not self.dry_run
        if asks:
            self._confirm(plan)
        for item_id, problem in plan.over.items():
            warn(f"{shown(item_id)} is not added: {problem}")
        if self.session.chosen.json:
            if self.dry_run:
                emit(plan.record() | {"dry_run": True})
        elif not asks:
            _print_lines(plan, whole=self.dry_run)
            if self.dry_run and plan.steps:
                click.echo("dry run: nothing was changed")

    def _confirm(self, plan: ApplyPlan, no: str = "nothing was changed") -> None:
        """Show the plan, and ask before items are removed. Raises BadInput where there is no
        terminal to ask on, BlackboardError that says `no` where that is the answer.
        """
        removed, names = plural(len(plan.remove), "item"), [item.id for item in plan.remove]
        named = few_of(names)
        if not sys.stdin.isatty():
            problem = f"this would remove {removed}: {named}"
            raise BadInput("prune", problem, "say so with --yes; --dry-run shows all")
        _print_lines(plan, err=self.session.chosen.json)
        if not confirmed(f"Remove {removed} ({named}), and do the rest?"):
            raise BlackboardError(no)

    async def _carry_out(self, board: BoardTable, plan: ApplyPlan) -> None:
        """Carry out the plan, and a new one each time that other processes, such as another
        `apply`, have added or removed its items meanwhile. Prints at the end what was done, also
        when not all could be.
        """
        first = plan
        try:
            for _ in range(TRIES - 1):
                with suppress(*MEANWHILE):
                    await self._do(board, plan)
                    return
                before, plan = plan, await self._planned(board)
                self._announce(plan, before=before)
            await self._do(board, plan)
        finally:
            done = first.made_of(self._parts, left_alone=self._left)
            if self.session.chosen.json:
                emit(done.record() | {"dry_run": False})
            elif plan is not first:
                counts = ", ".join(done.counts) or "nothing"
                note(f"others have added or removed items meanwhile; done here: {counts}")

    def _announce(self, plan: ApplyPlan, *, before: ApplyPlan) -> None:
        """Warn of what a new plan leaves as it is, and ask again before items are removed."""
        stay = plan.items.keys() - {item.id for item in plan.remove}
        if kept := [item.id for item in before.remove if item.id in stay]:
            warn(f"not removed, as others have declared them by now: {few_of(kept)}")
        if plan.remove and not self.yes:
            self._confirm(plan, no="nothing more was changed")
        self._leave(plan.left_alone)

    async def _do(self, board: BoardTable, plan: ApplyPlan) -> None:
        """Do what a plan says, each item by itself, or many in a batch: an apply that was ended in
        the middle is repeated, and goes on. Wakes the workers, and records what was done. Raises
        AlreadyThere or Missing where others add or remove the items meanwhile.
        """
        async with recording(self.session, board, "apply", plan.ids) as action:
            try:
                refused = await _add(board, plan, on_added=action.ids.update)
                refused |= await _change_and_remove(board, plan, on_done=action.ids.add)
            finally:
                part = plan.only(action.ids)
                action.details.extend(part.counts)
                self._parts.append(part)
        self._leave(refused)

    def _leave(self, problems: Mapping[str, str]) -> None:
        """Note items that are left as they are, each with the reason, and warn once of each."""
        for item_id, problem in problems.items():
            if self._left.get(item_id) != problem:
                warn(f"{shown(item_id)} is left as it is: {problem}")
        self._left.update(problems)


async def _add(
    board: BoardTable, plan: ApplyPlan, *, on_added: Callable[[Iterable[str]], None]
) -> dict[str, str]:
    """Add items. Returns those that the store refuses, each with the reason."""
    now = await board.table.now()
    new = [
        additions.New(
            id=addition.id,
            type=addition.declared.item.type,
            spec=addition.declared.spec,
            first=first_of(
                addition.declared.item.first, addition.declared.settings(board.resolve), now
            ),
            declared_by=addition.declared.file.by,
        )
        for addition in plan.add
    ]
    return await add_all(
        board,
        new,
        tombstones=plan.tombstones,
        on_added=lambda items: on_added(item.id for item in items),
        silent=MEANWHILE,
    )


async def _change_and_remove(
    board: BoardTable, plan: ApplyPlan, *, on_done: Callable[[str], None]
) -> dict[str, str]:
    """Change and remove items. Returns those that cannot be, each with the reason."""
    left = dict[str, str]()

    async def each(item_id: str, work: Awaitable[object]) -> None:
        try:
            await work
        except MEANWHILE:
            raise
        except (BadInput, BeingRenamed, ValueError) as problem:
            left[item_id] = str(problem)
        except Refused as refused:
            left[item_id] = f"the store will not take this: {refused.reason}"
        else:
            on_done(item_id)

    async def change(change: ItemChange) -> None:
        by = change.declared.file.by if change.declared else ""
        await each(change.id, edits.edit(board, change.id, change.spec_for, declared_by=by or None))

    async def remove(item: Item) -> None:
        await each(item.id, edits.remove(board, item.id, declared_by=item.declared_by))

    await for_each(plan.change, change, "changing", silent=MEANWHILE)
    await for_each(plan.remove, remove, "removing", silent=MEANWHILE)
    return left


def _print_lines(plan: ApplyPlan, *, whole: bool = False, err: bool = False) -> None:
    """Print the plan; the `whole` plan, or the first items that are added, changed and removed."""
    lines, kept = [*plan.lines()], list[str]()
    for line, more in first_of_each(lines, lambda line: line[0]):
        kept.append(line)
        if more:
            kept.append(f"{line[0]} ... and {more:,} more")
    click.echo(
        "\n".join(wrapped(line, margin="  ") for line in (lines if whole else kept)), err=err
    )
