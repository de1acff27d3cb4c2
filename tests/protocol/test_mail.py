"""Mail between candidates: sent, fetched, lost, doubled and taken back, on every store."""

import pytest

from blackboard.model import Identifier, Message, MessageKind, replace
from blackboard.protocol import keys, mail
from blackboard.protocol.rows import data_of
from blackboard.table import Data, Insert, Unavailable
from tests.support.boards import Scene, story
from tests.support.faults import Fault
from tests.support.stores import rows_of

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

OF = keys.mail_partition("town")


def message(to: str = "you", number: int = 1) -> Message:
    return Message(
        id="report",
        to=to,
        sender="rabbit:7301:1f6d3c02",
        rank=3,
        kind=MessageKind.ELECTION,
        number=number,
        ids=(Identifier(3, "rabbit:7301:1f6d3c02"), Identifier(5, "fox")),
    )


async def fetched(scene: Scene, to: str = "you") -> list[Message]:
    return [replace(one, etag="") for one in await mail.fetch(scene.other, to)]


@story
async def test_a_message_is_fetched_once_by_its_recipient(scene: Scene) -> None:
    await mail.send(scene.board, [message()])
    assert await fetched(scene, "me") == []
    assert await fetched(scene) == [message()]
    assert await fetched(scene) == []
    assert await rows_of(scene.table.table, OF) == []


@story
async def test_messages_to_many_are_one_batch_and_come_in_order(scene: Scene) -> None:
    before = scene.table.requests.commits
    await mail.send(scene.board, [message("you"), message("me"), message("you:2")])
    assert scene.table.requests.commits == before + 1
    scene.later(seconds=1)
    await mail.send(scene.board, [message("you", number=2)])
    assert [one.number for one in await fetched(scene)] == [1, 2]
    assert [one.to for one in await fetched(scene, "you:2")] == ["you:2"]


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER])
@story
async def test_a_message_without_an_answer_is_sent_again_and_comes_once(
    scene: Scene, fault: Fault
) -> None:
    scene.table.script(fault)
    await mail.send(scene.board, [message()])
    assert await fetched(scene) == [message()]


@story
async def test_a_message_that_lands_late_comes_twice_at_the_most(scene: Scene) -> None:
    scene.table.script(Fault.LATE)
    await mail.send(scene.board, [message()])
    assert await fetched(scene) == [message()]
    assert await scene.table.land() == [True]
    assert await fetched(scene) == [message()]


@story
async def test_a_message_that_is_never_answered_is_lost(scene: Scene) -> None:
    scene.table.script(Fault.NEVER, Fault.NEVER, Fault.NEVER)
    await mail.send(scene.board, [message()])
    assert await fetched(scene) == []


@story
async def test_a_store_that_is_away_is_no_lost_message(scene: Scene) -> None:
    scene.table.script(Fault.AWAY)
    with pytest.raises(Unavailable):
        await mail.send(scene.board, [message()])


@story
async def test_what_could_not_be_deleted_comes_again(scene: Scene) -> None:
    await mail.send(scene.other, [message()])
    scene.table.script(Fault.NEVER, Fault.NEVER, Fault.NEVER)
    assert len(await mail.fetch(scene.board, "you")) == 1
    assert await fetched(scene) == [message()]


@pytest.mark.of_each_store
@story
async def test_a_message_that_is_not_fetched_is_taken_back(scene: Scene) -> None:
    (key, other) = await mail.send(scene.board, [message("you"), message("me")])
    await mail.fetch(scene.other, "me")
    assert await mail.take_back(scene.board, key)
    assert not await mail.take_back(scene.board, other)
    assert await fetched(scene) == []


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER])
@story
async def test_in_doubt_it_was_not_fetched(scene: Scene, fault: Fault) -> None:
    (key,) = await mail.send(scene.board, [message()])
    scene.table.script(fault)
    assert await mail.take_back(scene.board, key)
    assert await fetched(scene) == []


@story
async def test_more_messages_than_a_batch_holds_are_sent_and_fetched(scene: Scene) -> None:
    many = scene.board.table.max_rows + 5
    await mail.send(scene.board, [message(number=number) for number in range(many)])
    found = [*await fetched(scene), *await fetched(scene)]
    assert sorted(one.number for one in found) == list(range(many))
    assert await fetched(scene) == []


@pytest.mark.of_each_store
@story
async def test_a_row_that_is_no_message_is_deleted_unread(scene: Scene) -> None:
    good = data_of(message())
    bad: list[Data] = [
        {**good, "kind": "treason"},
        {**good, "ids": '[{"rank":-1,"owner":"x"}]'},
        {**good, "ids": "[1]"},
        {**good, "version": 2},
        {"item": "report"},
    ]
    now = scene.clock.now()
    ops = [Insert(keys.mail_key("you", now, str(n)), data) for n, data in enumerate(bad)]
    await scene.table.table.commit(OF, ops)
    assert await fetched(scene) == []
    assert await rows_of(scene.table.table, OF) == []


@story
async def test_mail_for_the_dead_is_deleted_after_a_day(scene: Scene) -> None:
    await mail.send(scene.board, [message("dead")])
    scene.later(hours=23)
    await mail.send(scene.board, [message("alive")])
    await mail.forget_old(scene.board)
    assert len(await rows_of(scene.table.table, OF)) == 2
    scene.later(hours=2)
    await mail.forget_old(scene.board)
    assert [row.data["to"] for row in await rows_of(scene.table.table, OF)] == ["alive"]
