"""Workers on an Azure table whose requests come to harm, one kind of harm at a time: every item is
run, and none twice.

By default a short version runs. The long form of the proof makes it 2,000 claims
for each kind of harm. An item whose own lock stood in its way would not be run here: locks go
stale after an hour.
"""

import asyncio

import pytest

from blackboard.model import Outcome
from blackboard.table import Unavailable
from blackboard.tables.azure_transport import AzureTransport
from blackboard.tables.azurite import Emulator
from blackboard.worker.worker import Mode
from tests.proof.form import LONG
from tests.support.patience import patience
from tests.support.proxied_board import Place, place_behind
from tests.support.proxy import (
    BUSY,
    EmptyPages,
    FailedAfter,
    Fault,
    Late,
    Lost,
    Reset,
    Says,
    Stall,
    proxied,
)
from tests.support.wire import Kind

ITEMS, LEAST = (2000, 24) if LONG else (160, 2)
"""Items, and how often harm is done to claims and releases at the least."""
RATE, OF_PAGES = 0.1, 0.5
"""The part of the requests that come to harm; of pages, of which few are read, where no others do.
"""
PATIENCE = patience(900.0 if LONG else 180.0)
ANSWER = patience(2.0)
"""Seconds that a request of a worker may take here."""

HARM: dict[str, tuple[Fault, ...]] = {
    "reply lost": (Lost(),),
    "500 after the commit": (FailedAfter(),),
    "503 before": (BUSY, Says(503, "ServerBusy", "0"), Says(503, "ServerBusy", "2")),
    "reset before": (Reset(),),
    "stalls": (Stall(after=30.0),),
    "lands late": (Late(after=0.01), Late(after=1.0), Late(after=30.0)),
    "everything": (Lost(), FailedAfter(), BUSY, Reset(), Late(after=2.0)),
    "empty pages": (EmptyPages(2),),
}


async def all_run(place: Place) -> None:
    """Wait until every item has run; then let what is still on its way land, and wait until all
    of it is put right.
    """
    while len(place.ran) < ITEMS:  # noqa: ASYNC110 - by workers that know nothing of it
        await asyncio.sleep(0.2)
    place.proxy.calm()
    place.proxy.land()
    while not await is_settled(place):  # noqa: ASYNC110 - on the board
        await asyncio.sleep(0.2)


async def is_settled(place: Place) -> bool:
    try:
        if [lock async for lock in place.direct.locks()]:
            return False
        return {item.outcome async for item in place.direct.items()} == {Outcome.OK}
    except Unavailable:  # `ANSWER` holds here, too, and the machine may be busy
        return False


@pytest.mark.case("LR01", "LR03", "LR09", "S1", "L1", "L2")
@pytest.mark.timeout(PATIENCE + 60)
@pytest.mark.parametrize("faults", HARM.values(), ids=list(HARM))
def test_harm_done_to_requests_costs_no_run_and_makes_none_twice(
    azurite: Emulator, faults: tuple[Fault, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {Kind.PAGE} if isinstance(faults[0], EmptyPages) else set(Kind)

    async def story(place: Place) -> None:
        await place.add(*(f"item-{number}" for number in range(ITEMS)))
        workers = [await place.hired(owner) for owner in ("ann", "ben", "cleo")]
        for limit in ("commit_timeout", "page_timeout"):
            monkeypatch.setattr(AzureTransport, limit, ANSWER)
        for kind in kinds & {Kind.CLAIM, Kind.RELEASE, Kind.PAGE}:
            place.proxy.script(kind, None, faults[0])
        place.proxy.chance(OF_PAGES if kinds == {Kind.PAGE} else RATE, *faults, kinds=kinds)
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(worker.work(Mode.FOREVER))
            await all_run(place)
            for worker in workers:
                worker.stop()
        monkeypatch.undo()  # what is read now may take its time
        assert await place.problems() == []

    async def told() -> None:
        with proxied(azurite.port) as proxy:
            async with place_behind(proxy) as place:
                await story(place)
            counted = kinds & {Kind.CLAIM, Kind.RELEASE} or kinds
            assert sum(n for (kind, _), n in proxy.happened.items() if kind in counted) >= LEAST

    asyncio.run(told())
