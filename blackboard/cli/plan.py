"""What has to be done so that a board is what a file declares. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blackboard.cli.differences import Difference, differences
from blackboard.cli.selection import spec_of
from blackboard.cli.text import shown
from blackboard.model import Item
from blackboard.phrases import plural
from blackboard.protocol.reading import Resolve
from blackboard.settings import ItemTable
from blackboard.spec import Spec, encode_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemChange:
    """An item that is there, but not as declared: by its own table, or by its type's."""

    id: str
    differences: Sequence[Difference]
    declared: Spec | None = None
    """What the item shall say; None when it is not in the file."""

    def spec_for(self, spec: Spec, _item: Item) -> Spec:
        return self.declared or spec


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPlan:
    """The steps, in the order of the file and then of the board."""

    add: Sequence[ItemTable]
    change: Sequence[ItemChange]
    remove: Sequence[Item]
    unchanged: int

    @property
    def steps(self) -> int:
        return len(self.add) + len(self.change) + len(self.remove)

    def lines(self) -> Iterator[str]:
        """For people: one step a line, and their numbers."""
        for item in self.add:
            yield f"+ {shown(item.id)} ({shown(item.type)})"
        for one in self.change:
            told = "; ".join(difference.words for difference in one.differences)
            yield f"~ {shown(one.id)}: {told}"
        for gone in self.remove:
            yield f"- {shown(gone.id)} ({shown(gone.type)})"
        if not self.steps:
            yield f"nothing to do: {plural(self.unchanged, 'item')} as declared"
        else:
            yield (
                f"{len(self.add)} to add, {len(self.change)} to change, "
                f"{len(self.remove)} to remove, {self.unchanged} unchanged"
            )

    def record(self) -> dict[str, Any]:
        """For programs."""
        return {
            "add": [{"id": item.id, "type": item.type} for item in self.add],
            "change": [
                {
                    "id": one.id,
                    "differences": [
                        {"field": each.field, "old": each.old, "new": each.new}
                        for each in one.differences
                    ],
                }
                for one in self.change
            ],
            "remove": [{"id": item.id, "type": item.type} for item in self.remove],
            "unchanged": self.unchanged,
        }


def clashes(declared: Sequence[ItemTable], there: Mapping[str, Item]) -> list[tuple[int, Item]]:
    """Declared items, by their number in the file, that are on the board with another type."""
    return [
        (number, there[one.id])
        for number, one in enumerate(declared)
        if one.id in there and there[one.id].type != one.type
    ]


def make_plan(
    declared: Sequence[ItemTable],
    there: Mapping[str, Item],
    *,
    prune: bool,
    resolve: Resolve | None = None,
) -> ApplyPlan:
    """`there` are the board's items by id. What is not declared is removed if `prune` says so.
    `resolve` tells what the defaults of types make of an item.
    """
    specs = {one.id: one.spec() for one in declared}
    gone = [item for item in there.values() if prune and item.id not in specs]
    kept = [item for item in there.values() if not (prune and item.id not in specs)]
    changed = [_change(item, specs.get(item.id), resolve) for item in kept]
    return ApplyPlan(
        add=[one for one in declared if one.id not in there],
        change=[one for one in changed if one.differences],
        remove=gone,
        unchanged=sum(one.declared is not None and not one.differences for one in changed),
    )


def _change(item: Item, declared: Spec | None, resolve: Resolve | None) -> ItemChange:
    """How an item differs from what it shall be: in what it says, else in its schedule."""
    found = differences(spec_of(item), declared) if declared is not None else []
    if not found and resolve is not None and item.schedule:
        settings = resolve(item.type, encode_spec(declared or spec_of(item)))
        if settings.schedule is not None and settings.text != item.schedule:
            found = [Difference(field="schedule", old=item.schedule, new=settings.text)]
    return ItemChange(id=item.id, declared=declared, differences=found)
