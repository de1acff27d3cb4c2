"""The loop of `--watch` on a screen that is none: what is read when, what is shown of trouble, and
how it ends.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar

import pytest

from blackboard.board import Board
from blackboard.cli import options
from blackboard.cli.board_view import BoardView
from blackboard.cli.options import Chosen
from blackboard.cli.session import Session
from blackboard.cli.watch import (
    Drawn,
    PageView,
    WatchedPage,
    WatchedView,
    WatchLoop,
    fitting,
    key_lines,
)
from blackboard.cli.watch_keys import LIST_KEYS
from blackboard.clock import SystemClock
from blackboard.display.item_queries import ItemQuery
from blackboard.display.layout import Line, Style, measure, text_of
from blackboard.errors import BadInput
from blackboard.model import Mark, Outcome
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.edits import pause
from blackboard.table import Busy, Unavailable
from tests.cli.command_line import CommandLine, blackboard
from tests.support.clocks import ManualClock
from tests.support.faults import Fault, FaultyTable
from tests.support.patience import patience
from tests.support.stores import Run

__all__ = ["blackboard"]

pytestmark = pytest.mark.of_one_store("keys and the terminal are the same above any store")

NEVER = 86_400.0
PATIENCE = patience(30.0)


class Paper:
    """Keeps what is drawn."""

    def __init__(self, columns: int = 80, rows: int = 10) -> None:
        self.columns, self.rows = columns, rows
        self.lines: list[str] = []
        self.drawn = asyncio.Event()

    def size(self) -> tuple[int, int]:
        return self.columns, self.rows

    def draw(self, lines: Sequence[Line]) -> None:
        self.lines = [text_of(line, colour=False) for line in lines]
        self.drawn.set()

    async def shows(self, *texts: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not all(any(text in line for line in self.lines) for text in texts):
                self.drawn.clear()
                await self.drawn.wait()


Story = Callable[[WatchLoop, Paper], Awaitable[None]]


async def watched(
    view: WatchedView, story: Story, *, every: float = NEVER, paper: Paper | None = None
) -> None:
    """The story beside the loop, which must end with it."""
    paper = paper or Paper()
    loop = WatchLoop(view, paper, clock=SystemClock(), every=every)
    watching = asyncio.create_task(loop.run())
    telling = asyncio.create_task(_told(loop, paper, story))
    both = [watching, telling]
    await asyncio.wait(both, return_when=asyncio.FIRST_EXCEPTION, timeout=PATIENCE)
    is_well = watching.done() and not watching.cancelled()
    for one in both:
        one.cancel()
    ends = await asyncio.gather(*both, return_exceptions=True)
    for end in ends if is_well else ends[::-1]:
        if isinstance(end, Exception):
            raise end
    assert is_well, f"it does not end: {paper.lines}"


async def _told(loop: WatchLoop, paper: Paper, story: Story) -> None:
    await story(loop, paper)


def type_in(loop: WatchLoop, *keys: str) -> None:
    for key in keys:
        loop.pressed(key)


@pytest.fixture(name="towns")
def _towns(blackboard: CommandLine) -> CommandLine:
    blackboard("init")
    blackboard("add", "davis", "keene", "us-west", "--type", "calendars", "--every", "8h")
    blackboard("edit", "keene", "--tags", "nightly", "--owner", "web")
    blackboard.finish(blackboard.start("keene"), Outcome.FAILED, error="ValueError: boom")
    return blackboard


def view_of(board: BoardTable, query: ItemQuery | None = None) -> BoardView:
    return BoardView(board, Board(board, Session.start(Chosen())), query or ItemQuery())


def test_a_store_that_is_away_is_said_in_the_bottom_line(towns: CommandLine) -> None:
    async def story(board: BoardTable) -> None:
        table = FaultyTable(board.table)
        table.script_reads(Fault.BUSY, Fault.AWAY)

        async def told(loop: WatchLoop, paper: Paper) -> None:
            await paper.shows("store: the store is busy")
            await paper.shows("> davis", "keene", "? keys, q ends")
            table.script_reads(*[Fault.AWAY] * 40)
            type_in(loop, "f")
            await paper.shows("store: the store does not answer")
            table.script_reads()
            loop.pressed("q")

        await watched(view_of(board.using(table)), told, every=0.01)

    towns.on_board(story)


def test_an_act_that_fails_is_said_and_nothing_ends(towns: CommandLine) -> None:
    async def story(board: BoardTable) -> None:
        table = FaultyTable(board.table)

        async def told(loop: WatchLoop, paper: Paper) -> None:
            await paper.shows("> davis")
            table.script(Fault.AWAY)
            type_in(loop, "p", "enter")
            await paper.shows("store: the store does not answer")
            table.script(Fault.REFUSED)
            type_in(loop, "p", "enter")
            await paper.shows("too large for this store")
            type_in(loop, "r", "y")
            await paper.shows("davis is due now")
            type_in(loop, "q")

        await watched(view_of(board.using(table)), told)

    towns.on_board(story)
    assert towns.item("davis").paused == ""


def test_what_was_begun_is_done_when_it_ends(towns: CommandLine) -> None:
    async def story(board: BoardTable) -> None:
        async def told(loop: WatchLoop, paper: Paper) -> None:
            await paper.shows("> davis")
            type_in(loop, "p", *"why", "enter", "q")

        await watched(view_of(board), told)

    towns.on_board(story)
    assert "why" in towns.item("davis").paused


@pytest.mark.parametrize(
    ("typed", "seen"),
    [
        ("WEST", "us-west"),
        ("*-w*", "us-west"),
        ("tag:night*", "keene"),
        ("owner:web", "keene"),
        ("state:failed", "keene"),
        ("e state:failed", "keene"),
    ],
)
def test_a_filter_finds_items_by_what_they_are(towns: CommandLine, typed: str, seen: str) -> None:
    async def story(board: BoardTable) -> None:
        async def told(loop: WatchLoop, paper: Paper) -> None:
            await paper.shows("> davis")
            type_in(loop, "/", *typed, "enter")
            await paper.shows(f"> {seen}", "1 of 3 items", f"filter {typed}")
            type_in(loop, "/", "ctrl-u", *"type:other", "enter")
            await paper.shows("0 of 3 items")
            type_in(loop, "q")

        await watched(view_of(board), told)

    towns.on_board(story)


def test_a_held_board_is_read_only_for_keys(towns: CommandLine) -> None:
    async def story(board: BoardTable) -> None:
        view = view_of(board)

        async def told(loop: WatchLoop, paper: Paper) -> None:
            await paper.shows("> davis")
            loop.pressed(" ")
            await paper.shows("held")
            found = view.state.found
            for _ in range(20):
                await asyncio.sleep(0)
            assert view.state.found is found
            loop.pressed("S")
            await paper.shows("> us-west", "held", "by id, reversed")
            loop.pressed(" ")
            loop.pressed("q")

        await watched(view, told, every=0.001)

    towns.on_board(story)


def test_an_item_shows_why_and_its_runs_and_what_went_wrong(towns: CommandLine) -> None:
    async def story(board: BoardTable) -> None:
        async def told(loop: WatchLoop, paper: Paper) -> None:
            await paper.shows("> davis")
            type_in(loop, "j", "enter")
            await paper.shows("keene (type calendars) is waiting.", "failed", "ValueError: boom")
            await pause(board, "keene", await _mark(board))
            await paper.shows("is paused.")
            type_in(loop, "p", "enter")
            await paper.shows("keene is resumed")
            type_in(loop, "esc", "k", "enter")
            await paper.shows("davis (type calendars)", "no runs yet")
            type_in(loop, "esc", "q")

        await watched(view_of(board), told, every=0.01, paper=Paper(rows=40))

    towns.on_board(story)


async def _mark(board: BoardTable) -> Mark:
    return Mark(by="ann", at=await board.table.now(), reason="")


def test_the_commands_of_an_item_are_as_they_are_to_be_typed(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = ContextVar[Chosen]("chosen")
    chosen.set(Chosen(config="a.toml"))
    monkeypatch.setattr(options, "_CHOSEN", chosen)

    async def story(board: BoardTable) -> None:
        async def told(loop: WatchLoop, paper: Paper) -> None:
            await paper.shows("> davis")
            type_in(loop, "enter")
            await paper.shows("`blackboard --config a.toml ")
            type_in(loop, "esc", "q")

        await watched(view_of(board), told, paper=Paper(columns=200, rows=40))

    towns.on_board(story)


def test_a_removed_item_is_said_to_be_gone(towns: CommandLine) -> None:
    async def story(board: BoardTable) -> None:
        async def told(loop: WatchLoop, paper: Paper) -> None:
            await paper.shows("> davis")
            type_in(loop, "enter")
            await paper.shows("davis (type calendars)")
            await Board(board, Session.start(Chosen())).remove("davis")
            await paper.shows("id: no item 'davis'")
            type_in(loop, "esc")
            await paper.shows("> keene")
            type_in(loop, "q")

        await watched(view_of(board), told, every=0.01)

    towns.on_board(story)


def test_a_first_reading_that_is_refused_ends_it(towns: CommandLine) -> None:
    async def story(board: BoardTable) -> None:
        async def told(_: WatchLoop, paper: Paper) -> None:
            await paper.shows("never")

        with pytest.raises(BadInput, match="no item 'nobody'"):
            await watched(view_of(board, ItemQuery(ids=("nobody",))), told)

    towns.on_board(story)


# ---- pages


def page_view(*pages: WatchedPage | Exception) -> PageView:
    """One that reads these, one after the other, and then the last one again and again."""
    left = list(pages)

    async def read() -> Drawn:
        page = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(page, Exception):
            raise page
        return lambda _: page

    return PageView(read, ManualClock())


def page_of(number: int) -> WatchedPage:
    body = [[(text, Style.PLAIN)] for text in ("title", *(f"line {n}" for n in range(number)))]
    return WatchedPage(body=body, head=1, summary=f"{number} lines")


def test_a_page_is_scrolled_below_its_title(run: Run) -> None:
    async def told(loop: WatchLoop, paper: Paper) -> None:
        await paper.shows("title", "line 3", "1-4 of 20", "20 lines")
        type_in(loop, "end")
        await paper.shows("title", "line 19", "17-20 of 20")
        type_in(loop, "page up", "down")
        await paper.shows("14-17 of 20")
        type_in(loop, "?")
        await paper.shows("by a screen")
        type_in(loop, "esc", "home", " ")
        await paper.shows("1-4 of 20", "held")
        type_in(loop, "q")

    run(watched(page_view(page_of(20)), told, paper=Paper(60, 6)))


def test_a_page_stays_while_the_store_is_away(run: Run) -> None:
    async def told(loop: WatchLoop, paper: Paper) -> None:
        await paper.shows("line 0", "store: the store does not answer")
        await paper.shows("line 0", "q ends")
        loop.ended(0)

    pages = (page_of(1), Unavailable(), Busy(1.0), page_of(1))
    run(watched(page_view(*pages), told, every=0.01))


@pytest.mark.parametrize("width", [40, 60, 100])
def test_the_keys_fit_the_screen(width: int) -> None:
    lines = [text_of(line, colour=False) for line in key_lines(LIST_KEYS, width)]
    assert all(measure(line) <= width for line in lines)
    assert "PgUp PgDn" in "\n".join(lines)


def test_what_does_not_fit_a_line_is_left_out() -> None:
    assert fitting(["a", "", "b"], 10) == "a   b"
    assert fitting(["abc", "defg", "h"], 9) == "abc"
    assert fitting(["abc", "defg"], 2) == "abc"
