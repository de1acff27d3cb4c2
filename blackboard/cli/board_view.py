"""The view of `show --watch`: the items of a board, or one of them in full.

`watch_keys.py` says what the keys do; this file reads the board, draws it, and acts on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from blackboard.board import Board
from blackboard.cli.log import in_full
from blackboard.cli.output import paused_words, why_lines
from blackboard.cli.watch import Work, fitting, key_lines, words_of
from blackboard.cli.watch_keys import LIST_KEYS, Act, Prompt, Watching, pressed, read, sized
from blackboard.display import columns
from blackboard.display.escaping import shown
from blackboard.display.item_queries import ItemQuery
from blackboard.display.layout import Line, Style, fitted, paragraph, table, text_of, titled
from blackboard.errors import BlackboardError
from blackboard.model import Run, replace
from blackboard.phrases import plural
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.members import workers
from blackboard.records import AskedRun
from blackboard.rules.status import ItemStatus
from blackboard.table import TableError
from blackboard.why import Explanation, explained

NEWEST = 10
"""The most runs of an item that are shown."""
MARK = "> "
OF_AN_ITEM = ("stop", "outcome", "took", "lag", "try", "fence", "worker", "result or error")
QUESTIONS = {
    "pause": "pause {id}, because (Enter: pause, Esc: not): ",
    "resume": "resume {id}, because (Enter: resume, Esc: not): ",
    "cancel": "cancel the run of {id}, because (Enter: cancel, Esc: not): ",
    "run": "run {id} now? y/n ",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    status: ItemStatus
    why: Explanation
    runs: Sequence[Run]
    now: datetime
    """The store's time."""


class BoardView:
    def __init__(
        self,
        table: BoardTable,
        board: Board,
        query: ItemQuery,
        *,
        absolute: bool = False,
        limit: int | None = None,
    ) -> None:
        self.state = Watching(
            filter=" ".join(f"state:{state}" for state in query.states),
            sort=query.sort,
            reverse=query.reverse,
            most=limit,
        )
        self._table = table
        self._board = board
        self._base = query
        self._absolute = absolute
        self._opened: Opened | None = None
        self.trouble = ""
        self._asked: object = None
        """What was read last: the id of an item, or a query and its limit."""

    # ---- for the loop

    @property
    def is_over(self) -> bool:
        return self.state.ended

    @property
    def is_held(self) -> bool:
        return self.state.held

    @property
    def lacks(self) -> bool:
        return self._asked != self._to_read()

    def _to_read(self) -> object:
        state = self.state
        if state.opened is not None:
            return state.opened.item.id
        return state.query(self._base), state.limit

    def press(self, key: str) -> Work | None:
        self.state, act = pressed(self.state, key)
        if act is None:
            return None
        self.state = replace(self.state, message=f"{act.verb} {shown(act.id)} ...", bad=False)
        return partial(self._do, act)

    # ---- reading and doing

    async def read(self) -> None:
        self._asked = self._to_read()
        if self.state.opened is not None:
            await self._read_item(self.state.opened.item.id)
            return
        query, limit = self.state.query(self._base), self.state.limit
        items = await query.read(self._table, limit=limit)
        if self.state.query(self._base) == query:  # if not, the loop reads again at once
            self.state = read(self.state, items)

    async def _read_item(self, item_id: str) -> None:
        item = await self._table.found(item_id)
        status, why = await explained(self._table, item, await workers(self._table))
        runs = [run async for run in self._table.runs(item_id, limit=NEWEST)]
        opened = self.state.opened
        if opened is not None and opened.item.id == item_id:
            now = await self._table.table.now()
            self._opened = Opened(status=status, why=why, runs=runs, now=now)
            self.state = replace(self.state, opened=status)

    async def _do(self, act: Act) -> None:
        try:
            words = await self._done(act)
        except (BlackboardError, TableError) as trouble:
            self.state = replace(self.state, message=words_of(trouble), bad=True)
        else:
            self.state = replace(self.state, message=f"{shown(act.id)} {words}", bad=False)

    async def _done(self, act: Act) -> str:
        match act.verb:
            case "pause":
                done = await self._board.pause(act.id, reason=act.reason)
                return "is paused" + ("; the run under way may finish" if done.running else "")
            case "resume":
                await self._board.resume(act.id, reason=act.reason)
                return "is resumed"
            case "cancel":
                await self._board.cancel(act.id, fence=act.fence, reason=act.reason)
                return "is cancelled"
            case _:
                return _due(await self._board.run(act.id))

    # ---- drawing

    def draw(self, width: int, height: int) -> Sequence[Line]:
        if self.state.shows_keys:
            lines: Sequence[Line] = key_lines(LIST_KEYS, width)
        elif self.state.opened is not None:
            lines = self._item(width)
        else:
            return self._list(width, height)
        scroll, on_screen = self.state.scroll.part_of(lines, max(height - 1, 1))
        self.state = replace(self.state, scroll=scroll)
        part = f"lines {scroll.place}" if scroll.place else ""
        return [*on_screen, self._bottom(width, [part, "Esc back, ? keys"])]

    def _list(self, width: int, height: int) -> Sequence[Line]:
        listed = self.state.found
        head: list[Line] = []
        if listed is not None and listed.paused:
            head = [[(paused_words(listed.paused, listed.now), Style.LATE)]]
        page = height - len(head) - 3  # the titles, the summary, the bottom line
        self.state = sized(self.state, page)
        state = self.state
        lines = self._rows(state, width)
        lines += [()] * (state.page + 1 - len(lines))
        return [*head, *lines, self._summary(width), self._bottom(width, self._filters())]

    def _rows(self, state: Watching, width: int) -> list[Line]:
        """The titles, and the items on the screen; the chosen one is marked."""
        listed = state.found
        if listed is None:
            return [[("reading the board ...", Style.QUIET)]]
        if not state.items:
            words = "no item matches; Esc takes the filter away" if state.filter else "no items"
            return [[(words, Style.QUIET)]]
        on_screen = state.items[state.top : state.top + state.page]
        times = columns.ShownTimes(listed.now, self._absolute)
        rows = [columns.item_cells(status, times, held=listed.held) for status in on_screen]
        lines = list(
            table(times.columns(columns.ITEM_COLUMNS), rows, width=max(width - len(MARK), 1))
        )
        marked = [_marked(line, " " * len(MARK)) for line in lines]
        at = state.chosen - state.top + 1
        if 0 < at < len(lines):
            text = text_of(lines[at], colour=False)
            marked[at] = [(fitted(MARK + text, width), Style.CHOSEN)]
        return marked

    def _summary(self, width: int) -> Line:
        state, listed = self.state, self.state.found
        if listed is None:
            return ()
        last = min(state.top + state.page, state.total)
        place = f"{state.top + 1:,}-{last:,} of {state.total:,}" if state.total > state.page else ""
        words = (columns.found_summary(listed) or "0 items").split(", ")
        while len(words) > 1 and len(f"{', '.join(words)}   {place}") > width:
            words.pop()
        parts = [", ".join(words), place, f"{listed.now:%H:%M:%SZ}"]
        return [(fitting(parts, width), Style.TITLE)]

    def _filters(self) -> list[str]:
        state = self.state
        way = ", reversed" if state.reverse else ""
        return [
            "held" if state.held else "",
            f"filter {shown(state.filter)}" if state.filter else "",
            f"by {state.sort}{way}" if state.sort != "id" or way else "",
            "? keys, q ends",
        ]

    def _bottom(self, width: int, parts: Sequence[str]) -> Line:
        """The prompt, else the last message, else what is wrong, else `parts`."""
        state = self.state
        if state.prompt is not None:
            return [(_prompt(state, state.prompt, width), Style.TITLE)]
        if state.message:
            return [(state.message, Style.BAD if state.bad else Style.GOOD)]
        if self.trouble:
            return [(self.trouble, Style.BAD)]
        return [(fitting(parts, width), Style.QUIET)]

    def _item(self, width: int) -> Sequence[Line]:
        opened = self._opened
        asked = self.state.opened
        if opened is None or asked is None or opened.status.item.id != asked.item.id:
            return [[("reading the item ...", Style.QUIET)]]
        return item_lines(opened, width, absolute=self._absolute)


def _marked(line: Line, mark: str) -> Line:
    if not line:
        return line
    (text, style), *others = line
    return [(mark + text, style), *others]


def _prompt(state: Watching, prompt: Prompt, width: int) -> str:
    """The question and what was typed, of which the end is always seen."""
    words = "filter (Enter: filter, Esc: not): "
    if prompt.act is not None:
        words = QUESTIONS[prompt.act.verb].format(id=shown(prompt.act.id))
    if state.message:
        words = f"{state.message}  {words}"
    typed = "" if prompt.by_yes else f"{shown(prompt.typed)}_"
    least = max(width // 2, width - len(typed))
    return fitted(words, min(len(words), least)) + typed[-max(width - least, 10) :]


def _due(asked: AskedRun) -> str:
    if not asked.ahead:
        return "is due now"
    return f"is due after {plural(asked.ahead, 'run')}"


def item_lines(opened: Opened, width: int, *, absolute: bool) -> list[Line]:
    """An item in full: why it runs or does not, its newest runs, and all about the newest."""
    lines = why_lines(opened.why.headline, opened.why.facts, width)
    if not opened.runs:
        return [*lines, (), [("no runs yet", Style.QUIET)]]
    times = columns.ShownTimes(opened.now, absolute)
    cells = [columns.run_cells(run, times) for run in opened.runs]
    titles, rows = titled(times.columns(columns.RUN_COLUMNS), cells, OF_AN_ITEM)
    lines += [(), *table(titles, rows, width=width), ()]
    for text in in_full(opened.runs[0]):
        indent = " " * (len(text) - len(text.lstrip(" ")))
        lines += paragraph(text, width, margin=indent)
    return lines
