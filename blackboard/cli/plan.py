"""The plan of `apply`: what to add, change and remove, by what files declare and what is there."""

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from blackboard.cli.declarations import Declaration
from blackboard.cli.output import few_of
from blackboard.display.escaping import shown
from blackboard.errors import BadInput, NoTimeLeft
from blackboard.inputs import first_of
from blackboard.model import Item, State, replace
from blackboard.phrases import exactly, plural
from blackboard.protocol.board_table import Resolve
from blackboard.protocol.planning import spec_of
from blackboard.protocol.rows import text_of
from blackboard.rules.next_run import first_slot, ready_for
from blackboard.rules.transitions import rescheduled
from blackboard.spec import Spec, decode_spec, encode_spec

LONGEST_SHOWN = 60
"""Characters of a value in a difference."""
DECLARED_BY = "declared by"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One field that changes; None is an absent value, and is shown as unset."""

    field: str
    old: Any
    new: Any

    @property
    def words(self) -> str:
        """As in "every: 8h -> 4h"."""
        return f"{shown(self.field)}: {_value_words(self.old)} -> {_value_words(self.new)}"


def differences(old: Spec, new: Spec) -> list[Difference]:
    """The fields that differ, in their order. Empty for specs that give the same row."""
    if encode_spec(old) == encode_spec(new):  # most of very many
        return []
    # As specs are read back from rows.
    left, right = (msgspec.to_builtins(decode_spec(encode_spec(spec))) for spec in (old, new))
    return [
        difference
        for name in Spec.__struct_fields__
        for difference in _between(name, left.get(name), right.get(name))
    ]


def replanned(item: Item, schedule: str, timezone: str) -> list[Difference]:
    """The differences that another schedule, or another zone, makes to an item."""
    if item.schedule != schedule:
        return [Difference(field="schedule", old=item.schedule or None, new=schedule or None)]
    if schedule and item.timezone != timezone:
        return [Difference(field="timezone", old=item.timezone, new=timezone)]
    return []


def _between(field: str, old: Any, new: Any) -> Iterator[Difference]:
    if text_of(old) == text_of(new):
        return
    if field == "params" or (isinstance(old, Mapping) and isinstance(new, Mapping)):
        left, right = old or {}, new or {}
        for key in [*left, *(key for key in right if key not in left)]:
            yield from _between(f"{field}.{key}", left.get(key), right.get(key))
    else:
        yield Difference(field=field, old=old, new=new)


def _value_words(value: Any) -> str:
    if value is None:
        return "unset"
    text = shown(value) if isinstance(value, str) else text_of(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemAddition:
    declared: Declaration
    due: datetime
    """When it runs first."""

    @property
    def id(self) -> str:
        return self.declared.id


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemChange:
    """An item of the board that differs from its declaration, or from the defaults of its type."""

    id: str
    differences: Sequence[Difference]
    declared: Declaration | None = None
    """None when no file declares the item."""
    ends: bool = False
    """Whether it does not run any more by its new schedule."""

    def spec_for(self, spec: Spec, _item: Item) -> Spec:
        return self.declared.spec if self.declared else spec


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPlan:
    """The steps, in the order of the file and then of the board."""

    now: datetime
    """When it was made, by the clock of the store."""
    items: Mapping[str, Item]
    """The items of the board for which it was made, by id."""
    add: Sequence[ItemAddition]
    change: Sequence[ItemChange]
    remove: Sequence[Item]
    unchanged: int
    others: int
    """Items that are not declared, and belong to other files or to none."""
    left_alone: Mapping[str, str]
    """Items that stay as they are, each with the reason: those that cannot be read or computed."""
    over: Mapping[str, str]
    """Items that are declared, are not there, and would never run; each with the reason."""
    tombstones: Mapping[str, Item] = field(default_factory=dict)
    """Those of the board, by id."""

    @property
    def steps(self) -> int:
        return len(self.add) + len(self.change) + len(self.remove)

    @property
    def ids(self) -> list[str]:
        """The ids of the items that are added, changed or removed."""
        steps: list[ItemAddition | ItemChange | Item] = [*self.add, *self.change, *self.remove]
        return [step.id for step in steps]

    def only(self, ids: Container[str]) -> "ApplyPlan":
        """The part of it that is about these items."""
        return replace(
            self,
            add=[addition for addition in self.add if addition.id in ids],
            change=[change for change in self.change if change.id in ids],
            remove=[item for item in self.remove if item.id in ids],
        )

    def made_of(
        self, parts: Sequence["ApplyPlan"], *, left_alone: Mapping[str, str]
    ) -> "ApplyPlan":
        """This plan with the steps of others, which were done in its place."""
        return replace(
            self,
            add=[addition for part in parts for addition in part.add],
            change=[change for part in parts for change in part.change],
            remove=[item for part in parts for item in part.remove],
            left_alone=left_alone,
        )

    @property
    def counts(self) -> list[str]:
        """The numbers of items added, changed and removed, in words."""
        counts = {"added": self.add, "changed": self.change, "removed": self.remove}
        return [f"{len(items):,} {word}" for word, items in counts.items() if items]

    def lines(self) -> Iterator[str]:
        """For people: one step a line, and their numbers."""
        for addition in self.add:
            is_due = addition.due <= self.now
            words = "due now" if is_due else f"first {exactly(addition.due, self.now)}"
            yield f"+ {shown(addition.id)} ({shown(addition.declared.item.type)}): {words}"
        yield from self._lines_of_changes()
        for item in self.remove:
            yield f"- {shown(item.id)} ({shown(item.type)})"
        if self.steps:
            yield (
                f"{len(self.add)} to add, {len(self.change)} to change, "
                f"{len(self.remove)} to remove, {self.unchanged} unchanged"
            )
        else:
            yield f"nothing to do: {plural(self.unchanged, 'item')} as declared"

    def _lines_of_changes(self) -> Iterator[str]:
        """Items that only belong to another file from now on share a line: there may be as many as
        there are items.
        """
        moved = dict[tuple[str | None, str], list[str]]()
        for change in self.change:
            only = change.differences[0]
            if len(change.differences) == 1 and only.field == DECLARED_BY and not change.ends:
                moved.setdefault((only.old, only.new), []).append(change.id)
                continue
            words = "; ".join(difference.words for difference in change.differences)
            words += "; it is done: nothing is due by its new schedule" if change.ends else ""
            yield f"~ {shown(change.id)}: {words}"
        for (old, new), ids in moved.items():
            are_paths = Path(old or "").is_absolute() and Path(new).is_absolute()
            hint = " (--source NAME takes the place of a path that changes)" if are_paths else ""
            words = f"{DECLARED_BY}: {shown(old or 'unset')} -> {shown(new)}{hint}"
            yield f"~ {few_of(ids)}: {words}"

    def record(self) -> dict[str, Any]:
        return {
            "add": [
                {"id": addition.id, "type": addition.declared.item.type, "first": addition.due}
                for addition in self.add
            ],
            "change": [
                {
                    "id": change.id,
                    "differences": [asdict(difference) for difference in change.differences],
                    "ends": change.ends,
                }
                for change in self.change
            ],
            "remove": [{"id": item.id, "type": item.type} for item in self.remove],
            "unchanged": self.unchanged,
            "over": self.over,
            "left": self.left_alone,
        }


def make_plan(
    declared: Sequence[Declaration],
    items: Mapping[str, Item],
    *,
    prune: Collection[str],
    resolve: Resolve,
    now: datetime,
) -> ApplyPlan:
    """`items` are those of the board, by id. Items that are not declared, and belong to one of the
    files or sources of `prune`, are removed. `resolve` adds the defaults of types. A declaration
    whose end has passed adds no item. Raises BadInput with the line of a declaration.
    """
    named = {declaration.id: declaration for declaration in declared}
    add, change, remove = list[ItemAddition](), list[ItemChange](), list[Item]()
    left_alone, over = dict[str, str](), dict[str, str]()
    for declaration in declared:
        if declaration.id not in items:
            try:
                add.append(_addition(declaration, resolve, now=now))
            except NoTimeLeft as none:
                over[declaration.id] = str(none)
    for item in items.values():
        if item.id not in named and item.declared_by in prune:
            remove.append(item)
            continue
        try:
            change.append(_change(item, named.get(item.id), resolve, now=now))
        except (BadInput, ValueError) as problem:
            if item.id in named:
                raise
            left_alone[item.id] = str(problem)
    return ApplyPlan(
        now=now,
        items=items,
        add=add,
        change=[each for each in change if each.differences],
        remove=remove,
        unchanged=sum(each.declared is not None and not each.differences for each in change),
        others=sum(each.declared is None for each in change),
        left_alone=left_alone,
        over=over,
    )


def _addition(declaration: Declaration, resolve: Resolve, *, now: datetime) -> ItemAddition:
    """Raises NoTimeLeft where the item would never run."""
    settings = declaration.settings(resolve)
    with declaration.naming_line():
        first = first_of(declaration.item.first, settings, now)
    slot = first_slot(settings, first=first, now=now)
    due = ready_for(declaration.id, slot, settings=settings, first=True)
    return ItemAddition(declared=declaration, due=due)


def _change(
    item: Item, declared: Declaration | None, resolve: Resolve, *, now: datetime
) -> ItemChange:
    """How an item differs from its declaration: in its own spec, else in its resolved schedule."""
    spec = declared.spec if declared else spec_of(item)
    changes = differences(spec_of(item), spec) if declared else []
    if not changes:
        settings = resolve(item.type, encode_spec(spec))
        if settings.schedule is not None or settings.has_handler:
            changes = replanned(item, settings.text, settings.timezone)
    if declared is not None and declared.file.by not in {"", item.declared_by}:
        old = item.declared_by or None
        changes = [*changes, Difference(field=DECLARED_BY, old=old, new=declared.file.by)]
    ends = bool(changes) and _ends(item, spec, resolve, now=now)
    return ItemChange(id=item.id, declared=declared, differences=changes, ends=ends)


def _ends(item: Item, spec: Spec, resolve: Resolve, *, now: datetime) -> bool:
    """Whether an item that is to run again would not, with another spec."""
    settings = resolve(item.type, encode_spec(spec))
    is_other = (settings.text, settings.timezone) != (item.schedule, item.timezone)
    if item.state is State.DONE or not is_other:
        return False
    return rescheduled(item, settings=settings, now=now).state is State.DONE
