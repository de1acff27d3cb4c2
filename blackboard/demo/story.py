"""The demo as a story in six acts, and a summary of the records and files of its runs.

Each act waits until the board shows what the next paragraph says; nothing is printed in advance.
"""

import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path

import msgspec

from blackboard.clock import Clock
from blackboard.demo.board import (
    SLOTS,
    DemoFolder,
    DemoWorker,
    Story,
    apply,
    demo_pages,
    demo_workers,
    pages,
)
from blackboard.demo.feeds import BROKEN, TOWNS, serving
from blackboard.demo.output import Output, board_picture, history_picture, listed
from blackboard.display.columns import plain_record
from blackboard.display.layout import fitted
from blackboard.errors import BlackboardError
from blackboard.model import Lock, Outcome, Run
from blackboard.phrases import brief
from blackboard.protocol.status import BoardStatus, read_status
from blackboard.rules.status import ItemStatus
from blackboard.runners.commands import send_signal

DONE_BEFORE_THE_KILL = 4
SHOWN_PLAIN = 3
"""Records in the form of 2009 that are shown: all sixteen would fill three screens."""
_DAYS = 7
"""Days of a town's calendar that are shown."""
_TITLE = 34
"""Width of the title of an event, in cells of the terminal."""
KINDS = (
    (".ics", "the calendars, for any program that reads iCalendar"),
    (".json", "the same for programs of your own"),
    (".report.json", "how it went with each feed"),
    (".cache.json", "what the next run need not fetch or read again"),
)


async def play(
    output: Output,
    folder: DemoFolder,
    *,
    clock: Clock,
    program: str,
    served: Callable[[str, bool], Awaitable[None]] | None = None,
) -> None:
    """Play all acts, in an empty folder. `program` is the command as the reader calls it. With
    `served` the board is in a browser as well: it is called with the address and false, and once
    more with true at the end of the story, for as long as the page is to go on.
    Raises BlackboardError when an act does not happen in time.
    """
    today = clock.now().date()
    with serving(pages(today)) as site:
        folder.write_settings(site=site, today=today)
        await apply(folder)
        async with (
            folder.location.open() as board,
            demo_workers(folder) as workers,
            AsyncExitStack() as stack,
        ):
            if served is not None:
                url = await stack.enter_async_context(demo_pages(folder))
                await served(url, False)
            story = _Story(board=board, workers=workers, output=output, clock=clock, folder=folder)
            taken_over, last = await story.play()
            output.close()
            runs = [run async for run in board.runs(taken_over)]
            story.end(runs, board=last, today=today, program=program)
            if served is not None:
                await served(url, True)


@dataclass(slots=True, kw_only=True)
class _Story(Story):
    async def play(self) -> tuple[str, BoardStatus]:
        """All acts; returns a town that was taken over, and the board at the end."""
        self._a_board()
        survivor, victim = await self._two_workers()
        left = await self._a_kill(victim)
        await self._a_stale_lock(left)
        await self._an_override(left)
        return left[0].id, await self._the_end(survivor)

    def _a_board(self) -> None:
        folder, table, where = self.folder, "SQLite file", "All files are"
        if folder.elsewhere:
            table, where = "table", f"The board is {folder.board} in {folder.store}; its files are"
        self.output.title(f"1  A board: sixteen towns in one {table}")
        self.output.say(
            f"""Each row is a town. Every 8 hours its calendars are fetched and merged into one.
            This machine serves them, slowly, and one of them is broken. {where} in"""
        )
        self.output.lines([str(folder.path)])

    async def _two_workers(self) -> tuple[DemoWorker, DemoWorker]:
        survivor = await self.workers.start("A", "--until-idle")
        victim = await self.workers.start("B", "--until-idle")
        self.output.title(f"2  Two workers: A is process {survivor.pid}, B is {victim.pid}")
        self.output.say(
            """They exchange no messages, and no server directs them. Each reads the board, claims a
            due item by creating its lock row, in which only one of them succeeds, does the work,
            writes the outcome back, and reads the board again."""
        )
        await self._until(_in_full_swing)
        self.output.pause()
        return survivor, victim

    async def _a_kill(self, victim: DemoWorker) -> list[Lock]:
        """The locks that the victim leaves behind: one at least."""
        await self._until(lambda board: _done(board) >= DONE_BEFORE_THE_KILL)
        left = await self._locks_of_stopped(victim)
        await victim.kill()
        self.output.title(f"3  kill -9 {victim.pid}")
        self.output.say(
            f"""B ends in the middle of its work, and its locks stay: on {_names(left)}. No message
            is sent, and none is needed. A continues with the other towns."""
        )
        await self._look()
        self.output.pause()
        return left

    async def _locks_of_stopped(self, victim: DemoWorker) -> list[Lock]:
        """The locks of a stopped worker: a running one could release them before it is killed."""
        while victim.process.returncode is None:
            send_signal(victim.process, signal.SIGSTOP)
            left = [lock async for lock in self.board.locks() if victim.owns(lock.owner)]
            if left:
                return left
            send_signal(victim.process, signal.SIGCONT)
            await self.wait()
            await self._look()
        raise BlackboardError("B was done before it could be killed; try again")

    async def _a_stale_lock(self, left: Sequence[Lock]) -> None:
        board = await self._until(lambda board: bool(_stale(board, left)))
        stale = _stale(board, left)
        self.output.title("4  A lock goes stale")
        self.output.say(
            f"""A live worker renews its locks at short intervals. For
            {brief(stale[0].stale_after)}, the `stale_after` of this board, none was renewed of
            {_names(stale)}: from now on any worker may override what is stale."""
        )
        self.output.pause()

    async def _an_override(self, left: Sequence[Lock]) -> None:
        await self._until(lambda board: len(_taken(board, left)) == len(_of(board, left)))
        self.output.title("5  ... and is overridden")
        self.output.say(
            f"""A has taken over {_names(left)}: its name is in the lock, the fence is
            {left[0].fence + 1} instead of {left[0].fence}, and the history calls B's run
            `abandoned`. If B had only been suspended, its old fence would make its writes fail."""
        )
        self.output.pause()

    async def _the_end(self, survivor: DemoWorker) -> BoardStatus:
        await self._until(lambda board: _done(board) == len(TOWNS))
        await self._until(lambda _: survivor.process.returncode is not None)
        self.workers.check()
        board = await self._look()
        self.output.title("6  All is done")
        self.output.say(
            """Sixteen towns have their calendar. Nothing is due for hours, so A ends: it was
            started with --until-idle. Without it, A would read the board every cycle."""
        )
        self.output.pause()
        return board

    async def _look(self) -> BoardStatus:
        """Show the board as it is now, and return it."""
        board = await read_status(self.board)
        name_of, width = self.workers.name_of, self.output.width
        self.output.show(board_picture(board, name_of=name_of, width=width))
        return board

    async def _until(self, happened: Callable[[BoardStatus], bool]) -> BoardStatus:
        """Show the board until something has happened; the board as it was then."""
        while not happened(board := await self._look()):
            await self.wait()
        return board

    # ---- the summary at the end

    def end(self, runs: Sequence[Run], *, board: BoardStatus, today: date, program: str) -> None:
        """Writes the records of the board, the files of the folder, and commands to try next.
        `runs` are those of the town that was taken over, newest first.
        """
        if [run.outcome for run in runs] != [Outcome.OK, Outcome.ABANDONED]:
            raise BlackboardError(f"the history differs from the story: {[*map(str, runs)]}")
        town = runs[0].id
        self.output.title(f"What the board has recorded of {town}, newest first")
        name_of, width = self.workers.name_of, self.output.width
        self.output.table(history_picture(runs, board=board, name_of=name_of, width=width))
        self.output.title("The board as it was read in 2009: three of its records")
        first = sorted(board.statuses, key=lambda status: status.item.id != town)
        records = "\n\n".join(plain_record(status) for status in first[:SHOWN_PLAIN])
        self.output.lines(records.split("\n"))
        self._files()
        self.output.title(f"The next days in {town}, and who announced what")
        self.output.rows(week_in(self.folder.out / f"{town}.json", today=today))
        self.output.title("Three commands to try next")
        commands = ("show", f"log {town}", f"why {town}")
        self.output.lines(f"{program} {self.folder.options} {command}" for command in commands)

    def _files(self) -> None:
        self.output.title(f"The files, in {self.folder.out}")
        self.output.rows(files_in(self.folder.out))
        town, _ = BROKEN
        report = (self.folder.out / f"{town}.report.json").read_bytes()
        for feed in msgspec.json.decode(report)["feeds"]:
            if feed["status"] == "failed":
                self.output.say(
                    f"""The broken feed affects no other: {town} has all of the others, and its
                    report has the error of {feed["name"]}: "{feed["error"]}"."""
                )


def _in_full_swing(board: BoardStatus) -> bool:
    """Whether more runs go on than one worker has slots for, and one has reported progress."""
    running = [status for status in board.statuses if status.running]
    reported = any(status.lock is not None and status.lock.progress for status in running)
    return (len(running) > SLOTS and reported) or _done(board) > 0


def _done(board: BoardStatus) -> int:
    """The number of towns that have a calendar and do not run."""
    return sum(
        status.item.outcome is Outcome.OK and not status.running for status in board.statuses
    )


def _of(board: BoardStatus, locks: Sequence[Lock]) -> list[tuple[ItemStatus, Lock]]:
    by_id = {lock.id: lock for lock in locks}
    return [(status, by_id[status.item.id]) for status in board.statuses if status.item.id in by_id]


def _taken(board: BoardStatus, locks: Sequence[Lock]) -> list[Lock]:
    return [lock for status, lock in _of(board, locks) if status.item.fence > lock.fence]


def _stale(board: BoardStatus, locks: Sequence[Lock]) -> list[Lock]:
    """The locks that are stale, or were taken over since."""
    taken = _taken(board, locks)
    return [lock for status, lock in _of(board, locks) if status.stale or lock in taken]


def _names(locks: Sequence[Lock]) -> str:
    return listed(sorted(lock.id for lock in locks))


def files_in(folder: Path) -> Iterator[str]:
    """The files that the towns' runs have written: a line for each kind."""
    paths = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    for ending, about in KINDS:
        of_kind = [path for path in paths if path.name[path.name.index(".") :] == ending]
        size = sum(path.stat().st_size for path in of_kind)
        yield f"{len(of_kind):2} {ending:12} {size / 1000:4.0f} kB  {about}"


def week_in(events: Path, *, today: date) -> list[str]:
    """A town's events of the coming days, a line each: in its own time, with all their sources."""
    lines, last = list[str](), today + timedelta(days=_DAYS)
    for event in msgspec.json.decode(events.read_bytes())["events"]:
        start, end = map(datetime.fromisoformat, (event["start"], event["end"]))
        if today <= start.date() < last:
            times = "all day" if event["all_day"] else f"{start:%H:%M}-{end:%H:%M}"
            title, sources = fitted(event["title"], _TITLE), ", ".join(event["sources"])
            lines.append(f"{start:%a %d %b}  {times:11}  {title}  {sources}")
    return lines
