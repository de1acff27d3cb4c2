"""The acts of the demo. What is said is what happened: every act waits until the board says so."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from blackboard.cli.gather import Gathered, gather
from blackboard.cli.options import Chosen
from blackboard.cli.session import Session
from blackboard.clock import Clock
from blackboard.demo.company import Company, Player, apply, company
from blackboard.demo.curtain import Curtain
from blackboard.demo.picture import board_picture
from blackboard.demo.place import SLOTS, Place, pages
from blackboard.demo.server import serving
from blackboard.demo.stage import Stage
from blackboard.demo.telling import Telling, listed
from blackboard.demo.towns import TOWNS
from blackboard.errors import BlackboardError
from blackboard.model import Lock, Outcome
from blackboard.phrases import brief
from blackboard.protocol.reading import BoardTable
from blackboard.rules.status import ItemStatus

LOOK_EVERY = 0.2
PATIENCE = 45.0
"""Seconds for everything that is waited for; the rest of the minute is for what is not."""
DONE_BEFORE_THE_KILL = 4


async def play(stage: Stage, place: Place, *, clock: Clock, program: str) -> None:
    """The whole story, in an empty folder. `program` is how the reader calls the command. Raises
    BlackboardError when something does not happen.
    """
    today = clock.now().date()
    async with serving(pages(today), clock) as site:
        place.write_settings(site=site, today=today)
        await apply(place)
        chosen = Chosen(store=place.store, config=str(place.settings))
        async with Session.start(chosen).board() as board, company(place) as workers:
            story = _Story(board=board, workers=workers, stage=stage, clock=clock, place=place)
            taken_over, last = await story.tell()
            stage.close()
            curtain = Curtain(telling=Telling(stage), place=place, program=program)
            runs = [run async for run in board.runs(taken_over)]
            curtain.fall(runs, board=last, name_of=workers.name_of, today=today)


@dataclass(slots=True, kw_only=True)
class _Story:
    board: BoardTable
    workers: Company
    stage: Stage
    clock: Clock
    place: Place
    telling: Telling = field(init=False)
    ends: float = field(init=False)

    def __post_init__(self) -> None:
        self.telling = Telling(self.stage)
        self.ends = self.clock.monotonic() + PATIENCE

    async def tell(self) -> tuple[str, Gathered]:
        """All acts; a town that was taken over, and the board as it is at the end."""
        self._a_board()
        survivor, victim = await self._two_workers()
        left = await self._a_kill(victim)
        await self._a_stale_lock(left)
        await self._an_override(left)
        return left[0].id, await self._the_end(survivor)

    def _a_board(self) -> None:
        place, table, where = self.place, "SQLite file", "All there is"
        if place.elsewhere:
            table, where = "table", f"The board is {place.board} in {place.store}; all else"
        self.telling.title(f"1  A board: sixteen towns in one {table}")
        self.telling.say(
            f"""Each row is a town. Every 8 hours its calendars are fetched and merged into one.
            They are served from this machine, slowly, and one of them is broken. {where} lies in
            {place.folder}"""
        )

    async def _two_workers(self) -> tuple[Player, Player]:
        survivor = await self.workers.start("A")
        victim = await self.workers.start("B")
        self.telling.title(f"2  Two workers: A is process {survivor.pid}, B is {victim.pid}")
        self.telling.say(
            """They do not know each other, and no server tells them what to do. Each looks at the
            board, claims what is due by creating a lock row, which only one of them can, does the
            work, writes the outcome back, and looks again."""
        )
        await self._until(_in_full_swing)
        self.stage.pause()
        return survivor, victim

    async def _a_kill(self, victim: Player) -> list[Lock]:
        """The locks that the victim leaves behind: one at least."""
        await self._until(lambda board: _done(board) >= DONE_BEFORE_THE_KILL)
        left = await self._locks_for_ever(victim)
        await victim.kill()
        self.telling.title(f"3  kill -9 {victim.pid}")
        self.telling.say(
            f"""B is gone in the middle of its work, and leaves its locks behind: on
            {_names(left)}. Nobody is told, nobody has to notice. A goes on with the others."""
        )
        await self._look()
        self.stage.pause()
        return left

    async def _locks_for_ever(self, victim: Player) -> list[Lock]:
        """What it holds, frozen: running, it could let go of it between a look and the kill."""
        while victim.process.returncode is None:
            victim.freeze()
            left = [lock async for lock in self.board.locks() if victim.owns(lock.owner)]
            if left:
                return left
            victim.thaw()
            await self.clock.sleep(LOOK_EVERY)
            await self._look()
        raise BlackboardError("B was done before it could be killed; try again")

    async def _a_stale_lock(self, left: Sequence[Lock]) -> None:
        board = await self._until(
            lambda board: any(one.stale or _taken(one, lock) for one, lock in _of(board, left))
        )
        stale = [lock for one, lock in _of(board, left) if one.stale or _taken(one, lock)]
        self.telling.title("4  A lock goes stale")
        self.telling.say(
            f"""A living worker touches its locks again and again. For
            {brief(stale[0].stale_after)}, the `stale_after` of this board, nobody has touched
            {_names(stale)}: from now on whoever looks at it may take it over."""
        )
        self.stage.pause()

    async def _an_override(self, left: Sequence[Lock]) -> None:
        await self._until(lambda board: all(_taken(one, lock) for one, lock in _of(board, left)))
        self.telling.title("5  ... and is overridden")
        self.telling.say(
            f"""A has taken over {_names(left)}: its name is in the lock, the fence is
            {left[0].fence + 1} instead of {left[0].fence}, and the history calls B's run
            `abandoned`. Were B only asleep, its old fence would give it away."""
        )
        self.stage.pause()

    async def _the_end(self, survivor: Player) -> Gathered:
        await self._until(lambda board: _done(board) == len(TOWNS))
        await self._until(lambda _: survivor.process.returncode is not None)
        self.workers.check()
        board = await self._look()
        self.telling.title("6  All is done")
        self.telling.say(
            """Sixteen towns have their calendar. Nothing is due for hours, so A ends: it was
            started with --until-idle. Otherwise it would stay, and look every cycle."""
        )
        self.stage.pause()
        return board

    async def _look(self) -> Gathered:
        """Show the board as it is now."""
        board = await gather(self.board)
        name_of, width = self.workers.name_of, self.stage.width
        self.stage.show(board_picture(board, name_of=name_of, width=width))
        return board

    async def _until(self, happened: Callable[[Gathered], bool]) -> Gathered:
        """Keep looking until something has happened; the board as it was then."""
        while not happened(board := await self._look()):
            self.workers.check()
            if self.clock.monotonic() > self.ends:
                raise BlackboardError(f"this takes too long: see the logs in {self.place.folder}")
            await self.clock.sleep(LOOK_EVERY)
        return board


def _in_full_swing(board: Gathered) -> bool:
    """More runs than one worker has slots for, and one of them has told how far it is."""
    running = [one for one in board.statuses if one.running]
    told = any(one.lock is not None and one.lock.progress for one in running)
    return (len(running) > SLOTS and told) or _done(board) > 0


def _done(board: Gathered) -> int:
    """Towns that have a calendar and are at rest."""
    return sum(one.item.outcome is Outcome.OK and not one.running for one in board.statuses)


def _taken(one: ItemStatus, lock: Lock) -> bool:
    return one.item.fence > lock.fence


def _of(board: Gathered, locks: Sequence[Lock]) -> list[tuple[ItemStatus, Lock]]:
    by_id = {lock.id: lock for lock in locks}
    return [(one, by_id[one.item.id]) for one in board.statuses if one.item.id in by_id]


def _names(locks: Sequence[Lock]) -> str:
    return listed(sorted(lock.id for lock in locks))
