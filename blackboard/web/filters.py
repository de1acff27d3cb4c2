"""Which items a page shows, as its address says: `?state=failed&type=feed&q=tor&sort=stop&page=2`.

An address that says nothing, or nonsense, shows all: it may be an old bookmark. One with more
values of a name than a page can mean is refused: each link of the page would repeat all of them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.datastructures import ImmutableMultiDict

from blackboard.display.item_queries import SORTS, in_order
from blackboard.errors import BadInput
from blackboard.inputs import number_of
from blackboard.model import replace
from blackboard.rules.status import STATES
from blackboard.tasks import in_thread
from blackboard.web.snapshot import Entry, Snapshot

Value = TypeVar("Value")
PAGE = 100
"""Items of a page."""
LONGEST = 200
"""Characters of a search, or of another value, that count."""
MOST_VALUES = 20
"""Values of one name in an address."""
MOST_KEPT = 32
"""Choices of one version: a board may have 100,000 items."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What an address says."""

    search: str = ""
    """Words, all of which are in the id, type, description, owner or tags."""
    states: tuple[str, ...] = ()
    """Any of them."""
    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    sort: str = "id"
    reverse: bool = False
    page: int = 1

    @classmethod
    def of(cls, query: ImmutableMultiDict[str, str]) -> "Filter":
        """From the names and values of an address, or of a form. Raises BadInput."""
        sort = query.get("sort", "id")
        return cls(
            search=query.get("q", "").strip()[:LONGEST],
            states=tuple(state for state in values_of(query, "state") if state in STATES),
            types=values_of(query, "type"),
            tags=values_of(query, "tag"),
            sort=sort if sort in SORTS else "id",
            reverse=query.get("order") == "desc",
            page=max(number_of(query.get("page", "1"), digits=6) or 1, 1),
        )

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The names and values of the address, without what is usual."""
        pairs = [
            ("q", self.search),
            *(("state", state) for state in self.states),
            *(("type", type_) for type_ in self.types),
            *(("tag", tag) for tag in self.tags),
            ("sort", self.sort if self.sort != "id" else ""),
            ("order", "desc" if self.reverse else ""),
            ("page", str(self.page) if self.page > 1 else ""),
        ]
        return [pair for pair in pairs if pair[1]]

    @property
    def selects(self) -> bool:
        """Whether it leaves out items."""
        return bool(self.search or self.states or self.types or self.tags)

    def but(self, **changes: Any) -> "Filter":
        """The same with changes; its first page, unless they name another."""
        return replace(self, **{"page": 1, **changes})

    def sorted_by(self, key: str) -> "Filter":
        """Sorted by a column: the other way round if it is so already."""
        return self.but(sort=key, reverse=not self.reverse if key == self.sort else False)

    def toggled(self, name: str, value: str) -> "Filter":
        """With one of its values more, or without it."""
        return self.but(**{name: toggled(getattr(self, name), value)})

    def choose(self, entries: Sequence[Entry]) -> list[Entry]:
        """The items that match, in its order; `entries` are in that of their ids. An item without a
        value to sort by comes last.
        """
        chosen: Any = entries
        if self.states:
            states = frozenset(self.states)
            chosen = [entry for entry in chosen if not states.isdisjoint(entry.states)]
        if self.types:
            chosen = [entry for entry in chosen if entry.item.type in self.types]
        if self.tags:
            tags = set(self.tags)
            chosen = [entry for entry in chosen if not tags.isdisjoint(entry.labels.tags)]
        for word in self.search.lower().split():
            chosen = [entry for entry in chosen if word in entry.text]
        entries = list(chosen)
        if self.sort == "id":
            return entries[::-1] if self.reverse else entries
        value = SORTS[self.sort]
        return in_order(entries, lambda entry: value(entry.status), reverse=self.reverse)


def toggled(values: Collection[Value], value: Value) -> tuple[Value, ...]:
    """Values with one more, or without it if they have it."""
    left = tuple(other for other in values if other != value)
    return left if value in values else (*values, value)


def values_of(query: ImmutableMultiDict[str, str], name: str) -> tuple[str, ...]:
    """All values of a name but empty ones, each once, cut. Raises BadInput for too many."""
    values = tuple(dict.fromkeys(value[:LONGEST] for value in query.getlist(name) if value))
    if len(values) > MOST_VALUES:
        remedy = f"at most {MOST_VALUES}: choose by fewer, or search"
        raise BadInput(name, f"{len(values):,} are too many", remedy)
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemsPage:
    entries: Sequence[Entry]
    total: int
    page: int
    pages: int

    @property
    def first(self) -> int:
        """The number of its first item, from 1 on; 0 where there is none."""
        return (self.page - 1) * PAGE + 1 if self.entries else 0


class Chooser:
    """Chooses items of a snapshot; what was chosen of the same version is not chosen again."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._version = -1
        self._chosen: dict[Filter, list[Entry]] = {}

    async def all(self, filters: Filter) -> list[Entry]:
        version, key = self._snapshot.version, filters.but()
        if self._version != version:
            self._version, self._chosen = version, {}
        chosen = self._chosen.get(key)
        if chosen is None:
            chosen = await in_thread(filters.choose, [*self._snapshot.in_order()])
            if self._version == version:
                if len(self._chosen) >= MOST_KEPT:
                    self._chosen.clear()
                self._chosen[key] = chosen
        return chosen

    async def page(self, filters: Filter) -> ItemsPage:
        """One page of them: the last one where there are not so many."""
        chosen = await self.all(filters)
        pages = max(-(-len(chosen) // PAGE), 1)
        page = min(filters.page, pages)
        entries = chosen[(page - 1) * PAGE : page * PAGE]
        return ItemsPage(entries=entries, total=len(chosen), page=page, pages=pages)


def facet_counts(counts: Mapping[tuple[str, str], int], name: str) -> list[tuple[str, int]]:
    """The values of a facet with the number of their items, the most frequent first."""
    values = [(value, count) for (kind, value), count in counts.items() if kind == name]
    return sorted(values, key=lambda pair: (-pair[1], pair[0]))
