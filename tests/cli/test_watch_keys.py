"""What the keys of a watched board do: states and keys, without a terminal."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from blackboard.cli.terminal import KeyReader
from blackboard.cli.watch_keys import (
    LONGEST_TYPED,
    STATE_FILTERS,
    Act,
    Scroll,
    Watching,
    filter_of,
    pressed,
    read,
    sized,
)
from blackboard.display.item_queries import SORTS, ItemQuery, ItemsFound
from blackboard.errors import BadInput
from blackboard.model import Item, State, replace
from blackboard.rules.status import STATES, ItemStatus, counts_of

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)


def item(name: str, state: State = State.ACTIVE, *, running: bool = False) -> ItemStatus:
    found = Item(
        id=name,
        type="feed",
        state=state,
        spec="{}",
        slot=NOW,
        ready=NOW + timedelta(hours=1),
        planned=NOW,
        schedule="every 8h",
        running=running,
    )
    return ItemStatus(found, None, stale=False, overdue=False)


def board(*names: str | ItemStatus, left: int = 0) -> ItemsFound:
    items = [item(one) if isinstance(one, str) else one for one in names]
    counted = counts_of(items, now=NOW)
    return ItemsFound(items=items, left=left, now=NOW, counted=counted, total=len(items))


def watching(*names: str | ItemStatus, page: int = 3, left: int = 0) -> Watching:
    """A board of which so many items fit on the screen."""
    found = board(*names, left=left)
    return read(sized(Watching(), page), found)


def typed(state: Watching, *keys: str) -> tuple[Watching, Sequence[Act]]:
    """The state after keys, and all that is to be done."""
    acts = []
    for key in keys:
        state, act = pressed(state, key)
        acts += [act] if act else []
    return state, acts


def place(state: Watching) -> tuple[int, int, str]:
    one = state.selected
    return state.top, state.chosen, one.item.id if one else ""


LETTERS = "abcdefgh"


@pytest.mark.parametrize(
    ("keys", "top", "chosen"),
    [
        (["down"], 0, 1),
        (["j", "j"], 0, 2),
        (["j", "j", "j"], 1, 3),
        (["up"], 0, 0),
        (["end"], 5, 7),
        (["G", "k"], 5, 6),
        (["end", "up", "up", "up"], 4, 4),
        (["page down"], 1, 3),
        (["page down", "page down", "page down"], 5, 7),
        (["end", "home"], 0, 0),
        (["end", "page up"], 4, 4),
        (["x", "tab", "left"], 0, 0),
    ],
)
def test_the_chosen_item_moves_and_stays_on_the_screen(
    keys: list[str], top: int, chosen: int
) -> None:
    state, _ = typed(watching(*LETTERS), *keys)
    assert place(state) == (top, chosen, LETTERS[chosen])


def test_whole_screens_are_read_up_to_the_chosen_item() -> None:
    state = watching(*"abc", left=997)
    assert (state.total, state.limit) == (1000, 3)
    state, _ = typed(state, "j", "j")
    assert state.limit == 3
    state, _ = typed(state, "j")
    assert (state.selected, state.limit) == (None, 6)
    assert typed(state, "enter")[0].opened is None
    assert typed(state, "p")[0].message == "no item is chosen"
    state, _ = typed(state, "end")
    assert (state.chosen, state.limit) == (999, 1002)
    state = read(state, board(*LETTERS))
    assert (state.total, place(state)) == (8, (5, 7, "h"))
    few = replace(state, most=5)
    assert few.limit == 5
    assert read(few, board(*"abcde", left=3)).total == 5


def test_the_choice_stays_with_its_item_where_the_board_moves() -> None:
    state, _ = typed(watching(*LETTERS), "j", "j")
    moved = read(state, board("z", *LETTERS))
    assert place(moved) == (1, 3, "c")
    gone = read(state, board(*"abdefgh"))
    assert place(gone) == (0, 2, "d")
    few = read(typed(state, "end")[0], board("a"))
    assert place(few) == (0, 0, "a")
    assert place(read(state, board())) == (0, 0, "")
    first = read(watching(*LETTERS), board("z", *LETTERS))
    assert place(first) == (0, 0, "z")


def test_a_screen_that_is_made_smaller_shows_the_chosen_item() -> None:
    state, _ = typed(watching(*LETTERS, page=8), "j", "j", "j", "j")
    assert place(sized(state, 2)) == (3, 4, "e")
    assert place(sized(sized(state, 2), 8)) == (0, 4, "e")
    assert sized(state, -1).page == 1


CANCEL = Act(verb="cancel", id="a", fence=0)


@pytest.mark.parametrize(
    ("one", "keys", "acts"),
    [
        (item("a"), ["p", "enter"], [Act(verb="pause", id="a")]),
        (item("a"), ["p", *"why", "enter"], [Act(verb="pause", id="a", reason="why")]),
        (item("a"), ["p", "x", "backspace", "enter"], [Act(verb="pause", id="a")]),
        (item("a"), ["p", *"a b", "ctrl-w", "enter"], [Act(verb="pause", id="a", reason="a")]),
        (item("a"), ["p", *"no", "ctrl-u", "enter"], [Act(verb="pause", id="a")]),
        (item("a"), ["p", "w", "esc", "enter"], []),
        (item("a", State.PAUSED), ["p", "enter"], [Act(verb="resume", id="a")]),
        (item("a"), ["r", "y"], [Act(verb="run", id="a")]),
        (item("a"), ["r", "n"], []),
        (item("a"), ["r", "esc"], []),
        (item("a"), ["r", "enter", "y"], []),
        (item("a"), ["c", "enter"], []),
        (item("a", running=True), ["c", "enter"], [CANCEL]),
        (item("a", running=True), ["enter", "c", "enter"], [CANCEL]),
    ],
)  # fmt: skip
def test_what_is_done_names_its_item(one: ItemStatus, keys: list[str], acts: list[Act]) -> None:
    state, found = typed(watching(one), *keys)
    assert found == acts
    assert not state.ended


def test_a_board_that_moves_under_a_prompt_changes_no_question() -> None:
    state, _ = typed(watching(*LETTERS), "p")
    state = read(state, board("z", *LETTERS))
    assert typed(state, "enter")[1] == [Act(verb="pause", id="a")]


def test_a_reason_has_its_length() -> None:
    state, _ = typed(watching("a"), "p", *("x" * (LONGEST_TYPED + 9)))
    assert typed(state, "enter")[1][0].reason == "x" * LONGEST_TYPED


def test_a_filter_is_typed_and_taken_back() -> None:
    state, _ = typed(watching(*LETTERS), "j", "/", *"we tag:x", "enter")
    assert (state.filter, state.chosen, state.prompt) == ("we tag:x", 0, None)
    again, _ = typed(state, "/", *" more", "esc")
    assert again.filter == "we tag:x"
    assert typed(state, "esc")[0].filter == ""
    cleared, _ = typed(state, "/", "ctrl-u", "enter")
    assert cleared.filter == ""
    bad, _ = typed(state, "/", "ctrl-u", *"state:odd", "enter")
    assert bad.prompt
    assert bad.filter == "we tag:x"
    assert bad.message == f"state: there is no state 'odd' (one of {', '.join(STATES)})"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ItemQuery()),
        ("west us-*", ItemQuery(words=("west", "us-*"))),
        ("state:failed state:stale x", ItemQuery(words=("x",), states=("failed", "stale"))),
        ("type:feed type:b*", ItemQuery(words=("type:b*",), types=("feed",))),
        ("tag:x owner:web", ItemQuery(words=("tag:x", "owner:web"))),
        ("type:", ItemQuery(words=("type:",))),
    ],
)
def test_a_filter_in_words(text: str, found: ItemQuery) -> None:
    assert filter_of(text) == found
    query = Watching(filter=text, sort="next", reverse=True).query(ItemQuery(ids=("a",)))
    assert (query.ids, query.sort, query.reverse) == (("a",), "next", True)
    assert (query.words, query.states, query.types) == (found.words, found.states, found.types)


def test_types_of_the_command_line_stay_until_others_are_typed() -> None:
    base = ItemQuery(types=("a type",))
    assert Watching(filter="x").query(base).types == ("a type",)
    assert Watching(filter="type:feed").query(base).types == ("feed",)


def test_a_state_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match="there is no state 'odd'"):
        filter_of("state:odd")


def test_states_and_sorts_go_round() -> None:
    state, filters = replace(watching(*LETTERS), filter="west state:failed state:done"), []
    for _ in (*STATE_FILTERS, ""):
        state, _ = typed(state, "f")
        filters.append(state.filter)
    assert filters == [*(f"west state:{one}" for one in STATE_FILTERS), "west"]
    sorts = []
    for _ in SORTS:
        state, _ = typed(state, "s")
        sorts.append(state.sort)
    assert sorts == [*list(SORTS)[1:], "id"]
    assert typed(state, "S")[0].reverse
    assert not typed(state, "S", "S")[0].reverse
    assert set(STATE_FILTERS) <= set(STATES)


def test_an_item_is_opened_and_left_again() -> None:
    state, _ = typed(watching(*LETTERS), "j", "enter")
    assert state.opened
    assert state.opened.item.id == "b"
    state = replace(state, scroll=Scroll(lines=10, page=4))
    assert typed(state, "page down", "j")[0].scroll.down == 5
    assert typed(state, "end")[0].scroll.down == 6
    assert typed(state, "end", "up")[0].scroll.down == 5
    keys, _ = typed(state, "?")
    assert keys.shows_keys
    back = typed(keys, "q")[0]
    assert (back.shows_keys, back.opened) == (False, state.opened)
    for key in ("q", "esc", "left"):
        back, _ = typed(state, key)
        assert (back.shows_keys, back.opened, back.ended, back.chosen) == (False, None, False, 1)
    assert typed(state, "f")[0] == state


def test_the_end_comes_by_q_or_ctrl_c_alone() -> None:
    state = watching(*LETTERS)
    assert typed(state, "q")[0].ended
    assert typed(state, "?", "ctrl-c")[0].ended
    assert typed(state, "/", "ctrl-c")[0].ended
    assert not typed(state, "/", "q")[0].ended
    assert not typed(state, "?", "q")[0].ended
    assert not typed(state, "esc")[0].ended


def test_space_holds_and_is_a_space_in_what_is_typed() -> None:
    state = watching(*LETTERS)
    assert typed(state, " ")[0].held
    assert not typed(state, " ", " ")[0].held
    assert typed(state, "/", "a", " ", "b", "enter")[0].filter == "a b"


# ---- keys as a terminal sends them


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"j", ["j"]),
        (b"\x1b[A\x1b[B\x1b[5~\x1b[6~", ["up", "down", "page up", "page down"]),
        (b"\x1b[H\x1b[F\x1bOH\x1bOF\x1b[1~\x1b[4~", ["home", "end"] * 3),
        (b"\x1bOA\x1bOB", ["up", "down"]),
        (b"\r\n", ["enter", "enter"]),
        (b"\x7f\x08\x15\x03", ["backspace", "backspace", "ctrl-u", "ctrl-c"]),
        ("é東".encode(), ["é", "東"]),
        (b"\x1b[1;5A\x1b[200~x\x1bOP", ["x"]),
        (b"\x1bq", ["esc", "q"]),
        (b"\x00\x1c", []),
        (b" y", [" ", "y"]),
    ],
)
def test_keys_are_read_however_they_are_cut(data: bytes, keys: list[str]) -> None:
    assert KeyReader().read(data) == keys
    reader = KeyReader()
    one_by_one = [
        key for number in range(len(data)) for key in reader.read(data[number : number + 1])
    ]
    assert one_by_one == keys
    assert not reader.waits


def test_an_escape_is_a_key_when_nothing_follows() -> None:
    reader = KeyReader()
    assert reader.read(b"\x1b") == []
    assert reader.waits
    assert reader.flush() == ["esc"]
    assert reader.read(b"\x1b[") == []
    assert reader.flush() == ["esc", "["]
    assert reader.read(b"\x1b\x1b[A") == ["esc", "up"]
    assert reader.read(b"\xff") == ["\ufffd"]
    assert reader.flush() == []
