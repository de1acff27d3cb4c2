"""What the keys of a watched board do: a state, a key, and the next state. Pure.

    list    the items that match; one of them is chosen
    item    the chosen one: why it runs or does not, its newest runs
    keys    what the keys do
    prompt  the bottom line asks for a filter, for a reason, or for a yes

A key without a meaning in a state changes nothing. An `Act` is a change of the board: it names its
item, so it never applies to another item, even if the board is sorted anew meanwhile.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from blackboard.display.escaping import shown
from blackboard.display.item_queries import SORTS, ItemQuery, ItemsFound
from blackboard.display.layout import Line
from blackboard.errors import BadInput
from blackboard.inputs import check_state
from blackboard.model import replace
from blackboard.patterns import is_glob
from blackboard.rules.status import ItemStatus

STATE_FILTERS = ("running", "failed", "overdue", "stale", "paused", "waiting", "done")
"""The filters that `f` goes through, after "all"."""
LIST_KEYS = (
    ("up down, k j", "choose another item"),
    ("PgUp PgDn, Home End", "by a screen; the first and the last"),
    ("Enter", "why it runs or does not, its newest runs, its last error and output"),
    ("/", "filter: part of an id or a glob, state:failed tag:x type:y owner:z"),
    ("f", "only items in a state: the next one of running, failed, overdue ..."),
    ("s S", "sort by the next column; the other way round"),
    ("p", "pause the item, or resume it, for a reason"),
    ("r", "run it now"),
    ("c", "cancel its run, for a reason"),
    ("space", "hold the refresh, and go on"),
    ("?", "these keys"),
    ("Esc", "take the filter away; in here, and in an item: back"),
    ("q, Ctrl-C", "end; in here, q: back"),
)
PAGE_KEYS = (
    ("up down, k j", "scroll"),
    ("PgUp PgDn, Home End", "by a screen; to the beginning and to the end"),
    ("space", "hold the refresh, and go on"),
    ("?", "these keys"),
    ("q, Ctrl-C", "end"),
)
LONGEST_TYPED = 500
"""The most characters of a filter or a reason."""


class Act(Struct, frozen=True, kw_only=True):
    verb: Literal["pause", "resume", "run", "cancel"]
    id: str
    fence: int | None = None
    reason: str = ""


class Prompt(Struct, frozen=True, kw_only=True):
    """What the bottom line asks for: a filter where there is no act, else its reason, or yes."""

    typed: str = ""
    act: Act | None = None
    by_yes: bool = False


class Scroll(Struct, frozen=True, kw_only=True):
    """The part of some lines that is on the screen."""

    down: int = 0
    """The number of lines above the screen."""
    lines: int = 0
    page: int = 1
    """The number of lines that fit on the screen."""

    def pressed(self, key: str) -> "Scroll":
        return replace(self, down=moved(self.down, key, page=self.page)).fitted()

    def fitted(self) -> "Scroll":
        """The same without empty lines at the end, where there are enough lines."""
        return replace(self, down=min(max(self.down, 0), max(self.lines - self.page, 0)))

    def part_of(self, lines: Sequence[Line], page: int) -> tuple["Scroll", list[Line]]:
        """The same for these lines on a screen of so many, and those that are on it."""
        scroll = replace(self, lines=len(lines), page=page).fitted()
        on_screen = list(lines[scroll.down : scroll.down + page])
        return scroll, on_screen + [()] * (page - len(on_screen))

    @property
    def place(self) -> str:
        """Which lines are on the screen: "1-20 of 35"; "" where all are."""
        last = min(self.down + self.page, self.lines)
        return f"{self.down + 1}-{last} of {self.lines}" if self.lines > self.page else ""


END = 1 << 40


def moved(number: int, key: str, *, page: int) -> int:
    """The number of the line to which a key leads from one; `END` and above: the last line."""
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -page, "page down": page}
    ends = {"home": 0, "g": 0, "end": END, "G": END}
    return ends.get(key, number + steps.get(key, 0))


def filter_of(text: str) -> ItemQuery:
    """A filter as it is typed: parts of ids, globs, and words such as state:failed or tag:NAME. An
    item must match all words, and any of the states and types. Raises BadInput for a state that
    does not exist.
    """
    words, states, types = [], [], []
    for word in text.split():
        kind, colon, name = word.partition(":")
        if colon and kind == "state":
            states.append(check_state(name))
        elif colon and kind == "type" and name and not is_glob(name):
            types.append(name)
        else:
            words.append(word)
    return ItemQuery(words=tuple(words), states=tuple(states), types=tuple(types))


class Watching(Struct, frozen=True, kw_only=True):
    filter: str = ""
    sort: str = "id"
    reverse: bool = False
    chosen: int = 0
    """The number of the chosen item among those that match, from 0 on."""
    top: int = 0
    """The number of the first item on the screen."""
    page: int = 1
    """The number of items that fit on the screen."""
    most: int | None = None
    found: ItemsFound | None = None
    opened: ItemStatus | None = None
    """The item that is shown in full, in place of the list."""
    shows_keys: bool = False
    """Whether what the keys do is shown, in place of both."""
    scroll: Scroll = Scroll()
    """The scrolling of the item, or of the keys."""
    prompt: Prompt | None = None
    held: bool = False
    ended: bool = False
    message: str = ""
    """The result of the last act, until a key is pressed."""
    bad: bool = False

    @property
    def items(self) -> Sequence[ItemStatus]:
        return self.found.items if self.found else ()

    @property
    def total(self) -> int:
        return len(self.items) + (self.found.left if self.found else 0)

    @property
    def limit(self) -> int:
        """The number of items to read: whole screens, up to that of the chosen item."""
        last = max(self.top + self.page, self.chosen + 1)
        limit = -(-last // self.page) * self.page
        return limit if self.most is None else min(limit, self.most)

    @property
    def selected(self) -> ItemStatus | None:
        """The chosen item, where it has been read."""
        return self.items[self.chosen] if self.chosen < len(self.items) else None

    def query(self, base: ItemQuery) -> ItemQuery:
        """The query to read. `base` has the ids and the types of the command line."""
        parts = filter_of(self.filter)
        return replace(
            base,
            words=parts.words,
            states=parts.states,
            types=parts.types or base.types,
            sort=self.sort,
            reverse=self.reverse,
        )


# ---- events other than keys


def sized(state: Watching, page: int) -> Watching:
    """The state when `page` items fit on the screen; the chosen one stays on it."""
    page = max(page, 1)
    top = min(state.top, state.chosen)
    top = max(top, state.chosen - page + 1)
    if state.found is not None:
        top = min(top, max(state.total - page, 0))
    return replace(state, page=page, top=max(top, 0))


def read(state: Watching, listed: ItemsFound) -> Watching:
    """The state after a reading. The choice stays with its item; but if the first item was chosen,
    the new first one is chosen.
    """
    if state.most is not None:
        listed = replace(listed, left=min(listed.left, max(state.most - len(listed.items), 0)))
    before, chosen = state.selected, state.chosen
    if before is not None and chosen:
        ids = [status.item.id for status in listed.items]
        if before.item.id in ids:
            chosen = ids.index(before.item.id)
    moved_by = chosen - state.chosen
    state = replace(state, found=listed, chosen=chosen, top=max(state.top + moved_by, 0))
    return sized(replace(state, chosen=max(min(state.chosen, state.total - 1), 0)), state.page)


# ---- keys


def pressed(state: Watching, key: str) -> tuple[Watching, Act | None]:
    """The state after a key, and the act for the board, if any."""
    state = replace(state, message="", bad=False)
    if key == "ctrl-c":
        return replace(state, ended=True), None
    if state.prompt is not None:
        return _answered(state, state.prompt, key)
    if key == " ":
        return replace(state, held=not state.held), None
    if state.shows_keys:
        return _reading(state, key)
    if key in {"p", "r", "c"}:
        return _asked(state, key), None
    if key == "?":
        return replace(state, shows_keys=True, scroll=Scroll(page=state.page)), None
    if state.opened is not None:
        return _reading(state, key)
    return _listed(state, key), None


def _reading(state: Watching, key: str) -> tuple[Watching, None]:
    """The state after a key where an item or the keys are shown: it scrolls, or leads back."""
    if key in {"q", "esc", "left", "backspace", "enter", "?"}:
        opened, scroll = state.opened if state.shows_keys else None, Scroll(page=state.page)
        return replace(state, shows_keys=False, opened=opened, scroll=scroll), None
    return replace(state, scroll=state.scroll.pressed(key)), None


def _listed(state: Watching, key: str) -> Watching:
    match key:
        case "q":
            return replace(state, ended=True)
        case "/":
            return replace(state, prompt=Prompt(typed=state.filter))
        case "esc" if state.filter:
            return _from_top(replace(state, filter=""))
        case "f":
            return _from_top(replace(state, filter=_next_filter(state.filter)))
        case "s":
            sorts = [*SORTS]
            return _from_top(replace(state, sort=sorts[(sorts.index(state.sort) + 1) % len(sorts)]))
        case "S":
            return _from_top(replace(state, reverse=not state.reverse))
        case "enter" | "right":
            return replace(state, opened=state.selected, scroll=Scroll(page=state.page))
        case _:
            to = min(moved(state.chosen, key, page=state.page), state.total - 1)
            return sized(replace(state, chosen=max(to, 0)), state.page)


def _from_top(state: Watching) -> Watching:
    """The state with the first item chosen: other items match, or in another order."""
    return replace(state, chosen=0, top=0)


def _next_filter(text: str) -> str:
    """The filter with the next state in place of its states."""
    words = text.split()
    states = [word.removeprefix("state:") for word in words if word.startswith("state:")]
    kept = [word for word in words if not word.startswith("state:")]
    turn = ("", *STATE_FILTERS)
    now = states[0] if len(states) == 1 and states[0] in turn else ""
    following = turn[(turn.index(now) + 1) % len(turn)]
    return " ".join([*kept, f"state:{following}"] if following else kept)


def _asked(state: Watching, key: str) -> Watching:
    status = state.opened or state.selected
    if status is None:
        return replace(state, message="no item is chosen", bad=True)
    item = status.item
    if key == "c" and not item.running:
        return replace(state, message=f"{shown(item.id)} does not run", bad=True)
    match key:
        case "p":
            act = Act(verb="resume" if item.is_paused else "pause", id=item.id)
        case "c":
            act = Act(verb="cancel", id=item.id, fence=item.fence)
        case _:
            act = Act(verb="run", id=item.id)
    return replace(state, prompt=Prompt(act=act, by_yes=key == "r"))


def _answered(state: Watching, prompt: Prompt, key: str) -> tuple[Watching, Act | None]:
    """The state after a key at the prompt, and the act, if it is confirmed."""
    done = replace(state, prompt=None)
    if key == "esc":
        return done, None
    if prompt.by_yes:
        return done, prompt.act if key in {"y", "Y"} else None
    if key == "enter":
        typed = prompt.typed.strip()
        if prompt.act is not None:
            return done, replace(prompt.act, reason=typed)
        try:
            filter_of(typed)
        except BadInput as problem:
            return replace(state, message=str(problem), bad=True), None
        return _from_top(replace(done, filter=typed)), None
    return replace(state, prompt=replace(prompt, typed=_typed(prompt.typed, key))), None


def _typed(text: str, key: str) -> str:
    match key:
        case "backspace":
            return text[:-1]
        case "ctrl-u":
            return ""
        case "ctrl-w":
            return text.rstrip().rpartition(" ")[0]
        case _:
            return (text + key)[:LONGEST_TYPED] if len(key) == 1 else text
