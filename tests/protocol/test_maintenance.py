"""Pausing and resuming a board at the same time: its shards are all paused in the end, or none is.

The commands are driven request by request, without a loop: each request of the table in memory
stands still once.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from itertools import product
from typing import Any, TypeVar, cast

import pytest

from blackboard.model import Mark
from blackboard.protocol.board_pause import agree, is_paused, pause_board, resume_board
from blackboard.protocol.board_table import BoardTable, mark_in
from blackboard.protocol.keys import MAINTENANCE
from blackboard.table import ANY, Conflict, Delete, Etag, Op, Row
from blackboard.tables.memory import Contents, MemoryTable
from tests.support.boards import settings_of
from tests.support.clocks import ManualClock, SeededChance

Answer = TypeVar("Answer")
MANY = 1_000
"""Requests."""
Command = Callable[[BoardTable], Coroutine[Any, Any, object]]


class Noting(MemoryTable):
    """Notes what it has answered: what goes on above it follows from that."""

    def __init__(self, clock: ManualClock, contents: Contents) -> None:
        super().__init__(clock, contents)
        self.answers: list[object] = []

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        try:
            etags = await super().commit(partition, ops)
        except Conflict as lost:
            self.answers.append(lost.kind)
            raise
        self.answers += etags
        return etags

    async def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        async for row in super().scan(partition, first, last, limit):
            self.answers.append(row.etag)
            yield row
        self.answers.append(None)


class Place:
    """A fresh board in memory."""

    def __init__(self, shards: int) -> None:
        self.shards, self.clock, self.contents = shards, ManualClock(), Contents()
        self.tables: list[Noting] = []
        self.board = self.another()

    def another(self) -> BoardTable:
        """The same board in another process."""
        self.tables.append(Noting(self.clock, self.contents))
        return BoardTable(
            self.tables[-1],
            name="town",
            shards=self.shards,
            clock=self.clock,
            chance=SeededChance(1),
            resolve=settings_of,
        )

    @property
    def state(self) -> tuple[object, ...]:
        """What is there, and what each process was answered."""
        rows = [self.contents.row(one, MAINTENANCE) for one in self.partitions]
        return *(row and row.etag for row in rows), *(tuple(one.answers) for one in self.tables)

    @property
    def partitions(self) -> list[str]:
        return [self.board.shard(number) for number in range(self.shards)]

    @property
    def paused(self) -> list[bool]:
        """Whether each shard is."""
        return [self.contents.row(one, MAINTENANCE) is not None for one in self.partitions]


def finish(command: Coroutine[Any, Any, object]) -> None:
    while not has_ended(command):
        pass


def answer(asked: Coroutine[Any, Any, Answer]) -> Answer:
    while True:
        try:
            asked.send(None)
        except StopIteration as ended:
            return cast(Answer, ended.value)


def has_ended(command: Coroutine[Any, Any, object]) -> bool:
    """Whether it has, after one more request."""
    try:
        command.send(None)
    except StopIteration:
        return True
    return False


def every_order(
    commands: Sequence[Command],
    *,
    first: Sequence[Command] = (),
    most: Sequence[int] = (MANY, MANY),
) -> Iterator[tuple[Place, list[int]]]:
    """A board of two shards for each order of the requests of two commands, when both have ended,
    or were killed after so many requests at the `most`; which command made each request. `first`
    was done before. Of orders that came to the same state, one goes on.
    """
    unseen: list[list[int]] = [[]]
    seen = set[object]()
    while unseen:
        planned = unseen.pop()
        place = Place(2)
        for one in first:
            finish(one(place.board))
        under_way = {number: one(place.another()) for number, one in enumerate(commands)}
        order: list[int] = []
        while under_way:
            if len(order) < len(planned):
                now = planned[len(order)]
            else:
                state = place.state, order.count(0), order.count(1)
                if state in seen:
                    break
                seen.add(state)
                now, *others = under_way
                unseen += [[*order, other] for other in others]
            order.append(now)
            if has_ended(under_way[now]) or order.count(now) == most[now]:
                under_way.pop(now).close()
        else:
            yield place, order
        for left in under_way.values():
            left.close()


async def pause(board: BoardTable) -> None:
    await pause_board(board, Mark(by="ann", at=await board.table.now()))


async def pause_too(board: BoardTable) -> None:
    await pause_board(board, Mark(by="ben", at=await board.table.now()))


TOGETHER: list[tuple[Command, Command]] = [
    (pause, resume_board),
    (pause, pause_too),
    (resume_board, resume_board),
]


@pytest.mark.parametrize("first", [(), (pause_too,)], ids=["resumed", "paused"])
@pytest.mark.parametrize("commands", TOGETHER)
def test_two_at_a_time_leave_all_shards_alike(
    commands: Sequence[Command], first: Sequence[Command]
) -> None:
    ends = set()
    for place, order in every_order(commands, first=first):
        assert len(set(place.paused)) == 1, order
        ends.add(place.paused[0])
    assert ends == {one in (pause, pause_too) for one in commands}


@pytest.mark.parametrize("asked_again", [pause, resume_board])
@pytest.mark.parametrize("killed", [pause, resume_board])
def test_what_a_killed_command_has_left_is_finished_by_asking_again(
    killed: Command, asked_again: Command
) -> None:
    requests = 0
    while True:
        place = Place(3)
        if killed is resume_board:
            finish(pause_too(place.board))
        command = killed(place.board)
        ended = any(has_ended(command) for _ in range(requests))
        command.close()
        finish(asked_again(place.board))
        assert place.paused == [asked_again is pause] * 3, requests
        if ended:
            break
        requests += 1


@pytest.mark.parametrize("first", [(), (pause_too,)], ids=["resumed", "paused"])
def test_a_worker_finishes_what_two_commands_have_left_that_were_killed(
    first: Sequence[Command],
) -> None:
    """Each after any number of its requests."""
    for most in product(range(1, 9), repeat=2):
        for place, order in every_order((pause, resume_board), first=first, most=most):
            is_decided = place.paused[0]
            assert answer(is_paused(place.board, 1)) in (False, is_decided)
            if is_decided:
                finish(agree(place.board))
            assert place.paused == [is_decided] * 2, order


async def half_resumed(board: BoardTable) -> None:
    """A resume that was killed when it had deleted the row of shard 0."""
    await pause_too(board)
    await board.table.commit(board.shard(0), [Delete(MAINTENANCE, ANY)])


async def look(board: BoardTable) -> None:
    await is_paused(board, 1)


def test_a_worker_that_finishes_a_resume_deletes_no_row_of_a_pause_that_comes_meanwhile() -> None:
    for place, order in every_order((pause, look), first=(half_resumed,)):
        assert place.paused == [True] * 2, order


def test_the_mark_that_a_killed_pause_has_left_gives_way_to_that_of_the_next() -> None:
    place = Place(3)
    finish(pause(place.board))
    place.contents.parts["town-00"].drop(MAINTENANCE)
    finish(pause_too(place.board))
    marks = {
        mark_in(row).by
        for one in place.partitions
        if (row := place.contents.row(one, MAINTENANCE)) is not None
    }
    assert marks == {"ben"}
    assert place.paused == [True] * 3
