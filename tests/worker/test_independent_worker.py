"""A worker that was written from docs/rows.md alone shares a board with those of the product.

The tests make the board, add items, turn the emulator's clock, and look at the rows at the end.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.data.tables.aio import TableClient

from blackboard.doctor import Examination, examine
from blackboard.protocol import keys
from blackboard.protocol.edits import cancel, pause
from blackboard.protocol.members import workers
from blackboard.tables.azurite import Emulator
from tests.support.clocks import ManualClock
from tests.support.independent_worker import Dates, Held, IndependentWorker, encoded
from tests.support.stores import STORES
from tests.support.workers import WorkerScene, Workplace, with_workers

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class Turning(SansIOHTTPPolicy[Any, Any]):
    """Tells the emulator what time it is."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock

    def on_request(self, request: Any) -> None:
        since = self.clock.now() - datetime(1970, 1, 1, tzinfo=UTC)
        passed = str(since // timedelta(milliseconds=1))
        request.http_request.headers["x-blackboard-clock"] = passed


@dataclass(kw_only=True)
class Shared:
    """A board that an independent worker and workers of ours are at."""

    place: Workplace
    port: int

    @asynccontextmanager
    async def independent(self, *types: str) -> AsyncIterator[IndependentWorker]:
        dates = Dates(self.place.clock.monotonic)
        table = TableClient(
            f"http://127.0.0.1:{self.port}/{ACCOUNT}",
            self.place.table.table._address.table,  # type: ignore[attr-defined]
            credential=AzureNamedKeyCredential(ACCOUNT, KEY),
            per_call_policies=[Turning(self.place.clock), dates],
            retry_total=0,
        )
        async with table:
            found = IndependentWorker(
                table, dates, board="town", owner="independent:1:7f3a21c0", types=set(types)
            )
            await found.open()
            yield found

    async def add(self, *item_ids: str, item_type: str, **said: Any) -> None:
        for item_id in item_ids:
            await self.place.add(item_id, item_type=item_type, every="1h", stale_after="1m", **said)

    async def whole(self) -> None:
        """The doctor finds nothing; `with_workers` asks the oracle when the test has ended."""
        report = await examine(self.place.other, Examination())
        assert [one for one in report.findings if one.code != "workers"] == []


Test = Callable[[Shared], Awaitable[None]]


def on_one_board(test: Test, **about: Any) -> Callable[..., None]:
    async def shared(place: Workplace, port: int, **_: Any) -> None:
        at_hand = Shared(place=place, port=port)
        await test(at_hand)
        await at_hand.whole()

    def run(tmp_path: Path, azurite: Emulator) -> None:
        opened = STORES["azurite"](lambda: tmp_path, lambda: azurite)
        with_workers(shared)(open_table=opened, port=azurite.port, **about)

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    return run


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}/{number}" for number in range(count)]


async def both(independent: IndependentWorker, ours: WorkerScene, *, most: int = 100) -> list[Held]:
    """Both walk at the same time."""
    held, _ = await asyncio.gather(independent.walk(most=most), ours.walk())
    return held


def test_the_keys_of_an_independent_worker_are_ours() -> None:
    for item_id in ("davis", "a b/ü", "x" * 200, ".."):
        assert encoded(item_id) == keys.encode_id(item_id)


@pytest.mark.parametrize("shards", [1, 3])
def test_each_takes_its_own_types_and_the_board_is_whole(
    shards: int, tmp_path: Path, azurite: Emulator
) -> None:
    async def story(shared: Shared) -> None:
        place = shared.place
        theirs, mine = names("gosling", 6), names("feed", 6)
        async with shared.independent("gosling") as independent:
            await independent.announce()
            await shared.add(*theirs, item_type="gosling")
            await shared.add(*mine, item_type="feed")
            ours = await place.worker(slots=6)
            for fence in (1, 2, 3):
                held = await both(independent, ours)
                assert sorted(one.lock["item"] for one in held) == theirs
                for one in held:
                    assert await independent.release(one, result=f"[{fence}]") == "done"
                for name in mine:
                    (await ours.run(name, fence - 1)).end(result=fence)
                    await place.ended(name, runs=fence)
                for name in theirs + mine:
                    item = await place.item(name)
                    assert (item.fence, item.runs, item.running) == (fence, fence, False)
                place.later(hours=1, minutes=1)
            for name in theirs + mine:
                assert await place.outcomes(name) == [(1, "ok"), (2, "ok"), (3, "ok")]
            assert {run.worker for name in theirs for run in await place.runs(name)} == {
                independent.owner
            }
            sighted = {one.owner: one.types for one in await workers(place.other)}
            assert sighted[independent.owner] == "gosling"

    on_one_board(story, shards=shards)(tmp_path, azurite)


@on_one_board
async def test_what_both_take_is_taken_once(shared: Shared) -> None:
    place = shared.place
    every = names("feed", 40)
    await shared.add(*every, item_type="feed")
    async with shared.independent("feed") as independent:
        held = await independent.walk(most=4)
        ours = await place.worker(slots=5, at_once=True)
        theirs = []
        for _ in range(10):
            for one in held:
                assert await independent.release(one, result="1") == "done"
            theirs += [one.lock["item"] for one in held]
            held = await both(independent, ours, most=4)
        assert held == []
        for name in every:
            assert await place.ended(name) == [(1, "ok")]
        assert sorted(theirs + ours.order) == sorted(every)
        assert len(theirs) >= 4
        assert ours.order


@pytest.mark.case("OV06")
@on_one_board
async def test_what_an_independent_worker_renews_is_left_to_it(shared: Shared) -> None:
    place = shared.place
    await shared.add("davis", item_type="feed")
    async with shared.independent("feed") as independent:
        (held,) = await independent.walk()
        ours = await place.worker()
        for _ in range(4):
            place.later(seconds=40)
            assert await independent.renew(held)
            assert held.deadline == place.clock.monotonic() + 48.0
            await ours.walk()
        assert ours.order == []
        assert (await place.lock()).nonce == held.lock["nonce"]
        assert await independent.release(held, result='"well"') == "done"
    item = await place.item()
    assert (item.outcome, item.result, item.fence) == ("ok", '"well"', 1)


@pytest.mark.case("LF01")
@on_one_board
async def test_an_independent_worker_that_died_is_overridden_and_comes_late(shared: Shared) -> None:
    place = shared.place
    await shared.add("davis", item_type="feed")
    async with shared.independent("feed") as independent:
        (held,) = await independent.walk()
        place.later(seconds=70)
        ours = await place.worker()
        run = await ours.run("davis")
        assert run.call.fence == 2
        assert await place.outcomes() == [(1, "abandoned")]
        assert not await independent.renew(held)
        assert await independent.release(held, result='"late"') == "late"
        assert await place.outcomes() == [(1, "superseded")]
        run.end(result="in time")
        assert await place.ended("davis", runs=2) == [(1, "superseded"), (2, "ok")]
    item = await place.item()
    assert (item.result, item.result_fence, item.runs) == ('"in time"', 2, 2)


@on_one_board
async def test_an_independent_worker_overrides_ours(shared: Shared) -> None:
    place = shared.place
    await shared.add("davis", item_type="feed")
    ours = await place.claimed(owner="dead")
    async with shared.independent("feed") as independent:
        place.later(seconds=60)
        assert await independent.walk() == [], "it is not stale yet"
        place.later(seconds=2)
        (held,) = await independent.walk()
        assert (held.lock["fence"], held.lock["attempt"]) == (2, 2)
        late = await place.let_go(ours, result="late")
        assert (late.how, late.run.outcome) == ("late", "superseded")
        assert await independent.release(held, result='"in time"') == "done"
    assert await place.outcomes() == [(1, "superseded"), (2, "ok")]
    assert (await place.item()).result == '"in time"'


@on_one_board
async def test_an_independent_worker_whose_answers_get_lost_reads_the_lock(shared: Shared) -> None:
    place = shared.place
    await shared.add("davis", item_type="gosling")
    async with shared.independent("gosling") as independent:
        independent.deaf = True
        (held,) = await independent.walk()
        assert held.item == {}, "it has to be read before the release"
        independent.deaf = True
        assert await independent.renew(held)
        independent.deaf = True
        assert await independent.release(held, result="1") == "done"
    assert await place.outcomes() == [(1, "ok")]
    assert (await place.item()).runs == 1


@on_one_board
async def test_an_independent_worker_obeys_what_people_did_while_it_ran(shared: Shared) -> None:
    place = shared.place
    await shared.add("paused", "cancelled", item_type="gosling")
    async with shared.independent("gosling") as independent:
        held = {one.lock["item"]: one for one in await independent.walk()}
        await pause(place.other, "paused", place.mark())
        await cancel(place.other, "cancelled", place.mark(), fence=1)
        assert await independent.release(held["paused"], result="1") == "done"
        assert await independent.release(held["cancelled"], result="2") == "late"
    item = await place.item("paused")
    assert (item.state, item.outcome) == ("paused", "ok")
    assert [token.id for token in await place.tokens()] == ["cancelled"]
    assert await place.outcomes("cancelled") == [(1, "superseded")]
    (run,) = await place.runs("cancelled")
    assert "ann" in run.note


@on_one_board
async def test_an_independent_worker_leaves_rows_with_the_same_columns_and_types_as_ours(
    shared: Shared,
) -> None:
    place = shared.place
    await shared.add("theirs", item_type="gosling")
    await shared.add("ours", item_type="feed")
    async with shared.independent("gosling") as independent:
        (held,) = await independent.walk()
        made = await place.claimed("ours")
        before = await columns(place, "theirs"), await columns(place, "ours")
        await independent.release(held, result="1")
        await place.let_go(made, result=1)
    after = await columns(place, "theirs"), await columns(place, "ours")
    for (theirs, ours), families in ((before, {"item", "lock"}), (after, {"item", "next", "run"})):
        assert theirs == ours
        assert set(theirs) == families


async def columns(place: Workplace, item_id: str) -> dict[str, dict[str, type]]:
    """The columns of an item's rows and their types, by family."""
    return {
        row.key.partition(":")[0]: {name: type(value) for name, value in row.data.items()}
        for row in await place.rows()
        if row.data["item"] == item_id
    }
