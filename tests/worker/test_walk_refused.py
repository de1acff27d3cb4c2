"""An item of which the store takes no write: it is left alone, and the others go on."""

from collections.abc import Sequence

import pytest

from blackboard.events import ItemLeftAlone, StoreAway
from blackboard.protocol import keys
from blackboard.protocol.claims import renew, renew_all
from blackboard.protocol.renewals import RENEWALS
from blackboard.table import ANY, Delete, Etag, Merge, Op, Refused, Table
from blackboard.tables.base import ForwardingTable
from blackboard.worker.worker import Mode
from tests.support.boards import Scene, story
from tests.support.workers import Workplace, with_workers

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")

WHY = "field 'spec': 33,024 characters; a value holds at most 32,768"


class Refusing(ForwardingTable):
    """A table that refuses all writes of the rows of odd items in some families."""

    def __init__(self, table: Table, *families: str) -> None:
        super().__init__(table)
        self.families = families

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        for index, op in enumerate(ops):
            is_odd = op.key.startswith(self.families) and op.key.rstrip("0123456789").endswith(
                ":odd"
            )
            if is_odd and not isinstance(op, Delete):
                raise Refused(index, WHY)
        return await super().commit(partition, ops)


def refusing(place: Workplace, *families: str) -> dict[str, object]:
    return {"board": place.other.using(Refusing(place.other.table, *families))}


async def is_due(place: Workplace) -> tuple[str, ...]:
    """Its token is refused at its claim."""
    await place.add("odd")
    return (keys.ITEM,)


async def is_missed(place: Workplace) -> tuple[str, ...]:
    """Its slot is passed over, and the next token refused."""
    await place.add("odd", every="1h", missed="none")
    place.later(minutes=30)
    return (keys.ITEM, keys.NEXT)


async def is_stale(place: Workplace) -> tuple[str, ...]:
    """Its lock cannot be overridden."""
    await place.add("odd", every="1h", stale_after="3s")
    await place.claimed("odd", board=place.other, owner="dead")
    place.later(seconds=10)
    return (keys.ITEM,)


async def is_used_up(place: Workplace) -> tuple[str, ...]:
    """Its attempts are used up, so its lock is freed, and the next token refused."""
    await place.add("odd", every="1h", stale_after="3s")
    await place.claimed("odd", board=place.other, owner="dead")
    lock = Merge(keys.lock_key("odd"), {"attempt": 4}, ANY)
    await place.other.table.commit(place.other.partition("odd"), [lock])
    place.later(seconds=10)
    return (keys.NEXT,)


async def is_its_own(place: Workplace) -> tuple[str, ...]:
    """A claim of this worker that landed late, and whose lock cannot be renewed."""
    await place.add("odd", every="1h")
    await place.claimed("odd", board=place.other, owner="me")
    return (keys.LOCK,)


CASES = [is_due, is_missed, is_stale, is_used_up]


@pytest.mark.parametrize("mode", [Mode.ONCE, Mode.UNTIL_IDLE])
@pytest.mark.parametrize("case", CASES)
@with_workers
async def test_one_item_that_the_store_refuses_keeps_no_other_from_running(
    place: Workplace, case: object, mode: Mode
) -> None:
    assert callable(case)
    families = await case(place)
    for number in range(4):
        await place.add(f"item-{number}")
    worker = await place.worker(mode, at_once=True, **refusing(place, *families))  # type: ignore[arg-type]
    await worker.ended()
    assert sorted(worker.order) == [f"item-{number}" for number in range(4)]
    (left,) = worker.of(ItemLeftAlone)
    assert left.id == "odd"
    assert WHY in left.message
    assert "`blackboard rm`" in left.message
    assert worker.of(StoreAway) == []


@pytest.mark.of_each_store
@pytest.mark.parametrize("case", [*CASES, is_its_own])
@with_workers
async def test_it_is_reported_once(place: Workplace, case: object) -> None:
    assert callable(case)
    families = await case(place)
    worker = await place.worker(at_once=True, **refusing(place, *families))  # type: ignore[arg-type]
    await worker.walk()
    await place.add("davis")
    await worker.walk()
    assert worker.order == ["davis"]
    assert [one.id for one in worker.of(ItemLeftAlone)] == ["odd"]
    assert worker.of(StoreAway) == []


@pytest.mark.of_each_store
@story
async def test_locks_that_cannot_be_renewed_keep_no_other_of_their_batch_from_it(
    scene: Scene,
) -> None:
    claims = []
    odd = [f"odd{number}" for number in range(RENEWALS + 1)]
    for one in (*odd, "davis", "ann"):
        await scene.add(one)
        claims.append(await scene.claimed(one))
    board = scene.other.using(Refusing(scene.other.table, keys.LOCK))
    scene.later(seconds=5)
    renewed = {one.id: one for one in await renew_all(board, [(one, "") for one in claims])}
    assert [renewed.pop(one) for one in odd] == claims[: len(odd)]
    assert {one: made.sent for one, made in renewed.items()} == dict.fromkeys(
        ("davis", "ann"), scene.clock.monotonic()
    )
    with pytest.raises(Refused):
        await renew(board, claims[0])
