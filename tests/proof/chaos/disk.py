"""A story of every verb on a board, step by step, and a picture of the board after each of them.

What a step acknowledged has to be on the board afterwards, whatever happened to the disk; what was
refused must not be. The pictures of a store in memory say what that is.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

from blackboard.model import Ended, Item, Mark, Outcome, Token
from blackboard.protocol.additions import New, add
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim, claim, override, renew
from blackboard.protocol.edits import cancel, edit, pause, remove, resume, run_now, unlock
from blackboard.protocol.releases import FinishedRun, release
from blackboard.spec import Spec
from blackboard.table import Table, Unknown
from tests.support.boards import ALL_DAY, BY, TurningClock, make_board

LONG = "x" * 5_000
"""More than a page of a file holds."""
Picture = list[tuple[object, ...]]


@dataclass(kw_only=True)
class Told:
    """The story under way: a board, and the claims in hand."""

    board: BoardTable
    clock: TurningClock
    claims: dict[str, Claim] = field(default_factory=dict)
    trigger: int = 0

    async def add(self, name: str) -> None:
        spec = Spec(every="1h", retries=1)
        # Asked again after a lost answer, an item that is there was added by us.
        if (item := await self.board.item(name)) is None or item.state.value == "removed":
            await add(self.board, New(id=name, type="feed", spec=spec))

    async def claim(self, name: str) -> None:
        until = await self.board.table.now() + ALL_DAY
        found = [row async for row in self.board.walk(0, until=until)]
        tokens = [row for row in found if isinstance(row, Token) and row.id == name]
        answer = await claim(self.board, tokens, owner="me")
        if not answer.claims:
            raise Unknown(f"{name} was not claimed")
        (self.claims[name],) = answer.claims

    async def renew(self, name: str) -> None:
        renewed = await renew(self.board, self.claims[name], progress="[1,2]")
        assert renewed is not None
        self.claims[name] = renewed

    async def release(self, name: str, outcome: Outcome = Outcome.OK) -> None:
        made = self.claims[name]
        ended = Ended(outcome=outcome, result=made.fence if outcome is Outcome.OK else None)
        await release(self.board, [FinishedRun(claim=made, ended=ended)])

    async def override(self, name: str) -> None:
        self.clock.advance(timedelta(hours=2).total_seconds())
        lock = await self.board.lock(name)
        assert lock is not None
        taken = await override(self.board, lock, owner="another")
        if taken is None:
            raise Unknown(f"{name} was not overridden")
        self.claims[name] = taken

    async def edit(self, name: str) -> None:
        await edit(self.board, name, lambda *_: Spec(every="2h", params={"text": LONG}))

    async def run_now(self, name: str) -> None:
        await run_now(self.board, name, trigger="only once")

    async def free(self, name: str, verb: Callable[..., Awaitable[object]]) -> None:
        await verb(self.board, name, self.mark(), fence=(await self.item(name)).fence)

    async def item(self, name: str) -> Item:
        item = await self.board.item(name)
        assert item is not None
        return item

    def mark(self) -> Mark:
        return Mark(by=BY, at=self.clock.now())


Step = Callable[[Told], Awaitable[object]]
STEPS: tuple[Step, ...] = (
    lambda told: told.add("a"),
    lambda told: told.add("b"),
    lambda told: told.add("c"),
    lambda told: told.claim("a"),
    lambda told: told.claim("b"),
    lambda told: told.renew("a"),
    lambda told: told.release("a"),
    lambda told: told.release("b", Outcome.FAILED),
    lambda told: told.edit("c"),
    lambda told: pause(told.board, "c", told.mark()),
    lambda told: resume(told.board, "c", told.mark()),
    lambda told: told.run_now("c"),
    lambda told: told.claim("c"),
    lambda told: told.free("c", unlock),
    lambda told: told.release("c"),
    lambda told: told.claim("c"),
    lambda told: told.free("c", cancel),
    lambda told: told.claim("a"),
    lambda told: told.override("a"),
    lambda told: told.release("a"),
    lambda told: remove(told.board, "b"),
    lambda told: told.add("b"),
)
"""Each is one batch, but for the release of a run that is late."""


async def begin(table: Table, clock: TurningClock) -> Told:
    return Told(board=await make_board(table, clock), clock=clock)


async def picture(table: Table) -> Picture:
    """What the rows of the board say, but for times and names that are drawn."""
    names = ("item", "state", "fence", "running", "outcome", "runs", "attempt", "failures", "spec")
    found = [
        (row.key.partition(":")[0], *(row.data.get(name) for name in names))
        async for row in table.scan("town")
    ]
    return sorted(found, key=repr)
