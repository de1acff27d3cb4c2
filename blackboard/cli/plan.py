"""The plan of `apply`: what to add, change and remove, by what files declare and what is there."""

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from blackboard.cli.output import few_of
from blackboard.display.layout import shown
from blackboard.errors import BadInput
from blackboard.model import Item, State, replace
from blackboard.phrases import exactly, plural
from blackboard.protocol.board_table import Resolve
from blackboard.protocol.planning import spec_of
from blackboard.protocol.rows import text_of
from blackboard.rules.transitions import rescheduled
from blackboard.settings import ItemTable
from blackboard.spec import RunSettings, Spec, decode_spec, encode_spec

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
    left, right = _plain(old), _plain(new)
    fields = [*Spec.__struct_fields__]
    return [
        difference
        for name in fields
        for difference in _between(name, left.get(name), right.get(name))
    ]


def replanned(item: Item, schedule: str, timezone: str) -> list[Difference]:
    """The differences that another schedule, or another zone, makes to an item."""
    if item.schedule != schedule:
        return [Difference(field="schedule", old=item.schedule or None, new=schedule or None)]
    if schedule and item.timezone != timezone:
        return [Difference(field="timezone", old=item.timezone, new=timezone)]
    return []


def _plain(spec: Spec) -> dict[str, Any]:
    """A spec as it is read back from a row."""
    plain: dict[str, Any] = msgspec.to_builtins(decode_spec(encode_spec(spec)))
    return plain


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


@dataclass(frozen=True, kw_only=True)
class Declaration:
    item: ItemTable
    by: str
    """The file, or the source, to which the item belongs from now on; "": to none."""

    @property
    def id(self) -> str:
        return self.item.id

    @cached_property
    def spec(self) -> Spec:
        return self.item.spec()

    def settings(self, resolve: Resolve) -> RunSettings:
        return resolve(self.item.type, encode_spec(self.spec))


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

    add: Sequence[Declaration]
    change: Sequence[ItemChange]
    remove: Sequence[Item]
    unchanged: int
    others: int = 0
    """Items that are not declared, and belong to other files or to none."""
    left_alone: Mapping[str, str] = field(default_factory=dict)
    """Items that stay as they are, each with the reason: those that cannot be read or computed."""
    first: Mapping[str, datetime] = field(default_factory=dict)
    """When those that are added run first, by id."""
    over: Mapping[str, str] = field(default_factory=dict)
    """Items that are declared, are not there, and would never run; each with the reason."""

    @property
    def steps(self) -> int:
        return len(self.add) + len(self.change) + len(self.remove)

    @property
    def ids(self) -> list[str]:
        """The ids of the items that are added, changed or removed."""
        steps: list[Declaration | ItemChange | Item] = [*self.add, *self.change, *self.remove]
        return [step.id for step in steps]

    def only(self, ids: Container[str]) -> "ApplyPlan":
        """The part of it that is about these items."""
        return replace(
            self,
            add=[declaration for declaration in self.add if declaration.id in ids],
            change=[change for change in self.change if change.id in ids],
            remove=[item for item in self.remove if item.id in ids],
        )

    def made_of(
        self, parts: Sequence["ApplyPlan"], *, left_alone: Mapping[str, str]
    ) -> "ApplyPlan":
        """This plan with the steps of others, which were done in its place."""
        return replace(
            self,
            add=[declaration for part in parts for declaration in part.add],
            change=[change for part in parts for change in part.change],
            remove=[item for part in parts for item in part.remove],
            first={item_id: at for part in parts for item_id, at in part.first.items()},
            left_alone=left_alone,
        )

    @property
    def counts(self) -> list[str]:
        """The numbers of items added, changed and removed, in words."""
        counts = {"added": self.add, "changed": self.change, "removed": self.remove}
        return [f"{len(items):,} {word}" for word, items in counts.items() if items]

    def lines(self, now: datetime) -> Iterator[str]:
        """For people: one step a line, and their numbers. Items that only belong to another file
        from now on share a line: there may be as many as there are items.
        """
        for declaration in self.add:
            first = self.first.get(declaration.id, now)
            words = "due now" if first <= now else f"first {exactly(first, now)}"
            yield f"+ {shown(declaration.id)} ({shown(declaration.item.type)}): {words}"
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
        return {
            "add": [
                {
                    "id": declaration.id,
                    "type": declaration.item.type,
                    "first": self.first.get(declaration.id),
                }
                for declaration in self.add
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
    there: Mapping[str, Item],
    *,
    prune: Collection[str] = (),
    resolve: Resolve,
    now: datetime,
) -> ApplyPlan:
    """`there` are the board's items by id. Items that are not declared, and belong to one of the
    files or sources of `prune`, are removed. `resolve` adds the defaults of types.
    """
    named = {declaration.id: declaration for declaration in declared}
    gone = [item for item in there.values() if item.id not in named and item.declared_by in prune]
    removed = {item.id for item in gone}
    kept = [item for item in there.values() if item.id not in removed]
    left_alone = dict[str, str]()
    changed = []
    for item in kept:
        try:
            changed.append(_change(item, named.get(item.id), resolve, now=now))
        except (BadInput, ValueError) as problem:
            if item.id in named:
                raise
            left_alone[item.id] = str(problem)
    return ApplyPlan(
        add=[declaration for declaration in declared if declaration.id not in there],
        change=[change for change in changed if change.differences],
        remove=gone,
        unchanged=sum(change.declared is not None and not change.differences for change in changed),
        others=sum(change.declared is None for change in changed),
        left_alone=left_alone,
    )


def _change(
    item: Item, declared: Declaration | None, resolve: Resolve, *, now: datetime
) -> ItemChange:
    """How an item differs from its declaration: in its own spec, else in its resolved schedule."""
    spec = declared.spec if declared else None
    found = differences(spec_of(item), spec) if spec is not None else []
    if not found:
        settings = resolve(item.type, encode_spec(spec or spec_of(item)))
        if settings.schedule is not None or settings.has_handler:
            found = replanned(item, settings.text, settings.timezone)
    if declared is not None and declared.by not in {"", item.declared_by}:
        old = item.declared_by or None
        found = [*found, Difference(field=DECLARED_BY, old=old, new=declared.by)]
    ends = bool(found) and _ends(item, spec or spec_of(item), resolve, now=now)
    return ItemChange(id=item.id, declared=declared, differences=found, ends=ends)


def _ends(item: Item, spec: Spec, resolve: Resolve, *, now: datetime) -> bool:
    """Whether an item that is to run again would not, with another spec."""
    settings = resolve(item.type, encode_spec(spec))
    is_other = (settings.text, settings.timezone) != (item.schedule, item.timezone)
    if item.state is State.DONE or not is_other:
        return False
    return rescheduled(item, settings=settings, now=now).state is State.DONE
