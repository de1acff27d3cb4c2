"""An Azure table whose requests come to harm: what is told, and how the verbs settle it.

All of it is the real store against Azurite, through a proxy.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import pytest

from blackboard.events import LockAdopted
from blackboard.model import Token
from blackboard.protocol.claims import Claim, claim, override, renew
from blackboard.protocol.releases import release
from blackboard.stores import open_table
from blackboard.table import (
    ANY,
    Busy,
    Conflict,
    Insert,
    Merge,
    Replace,
    TableError,
    Unavailable,
    Unknown,
    Unusable,
)
from blackboard.tables import azure
from blackboard.tables.azure_transport import AzureTransport
from blackboard.tables.azurite import Emulator
from tests.support.boards import TurningClock, finished
from tests.support.proxied_board import Place, place_behind
from tests.support.proxy import (
    BUSY,
    EmptyPages,
    FailedAfter,
    Fault,
    Late,
    Lost,
    Proxy,
    Reset,
    Says,
    Stall,
    proxied,
)
from tests.support.stores import rows_of
from tests.support.wire import Kind

SOON = 1.5
"""Seconds that a request may take here: stalled ones are not waited for any longer."""


@pytest.fixture
def proxy(azurite: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    for limit in ("commit_timeout", "page_timeout"):
        monkeypatch.setattr(AzureTransport, limit, SOON)
    with proxied(azurite.port) as made:
        yield made


Story = Callable[[Place], Awaitable[None]]


def tell(proxy: Proxy, story: Story) -> None:
    """Tell a story of a fresh board."""

    async def told() -> None:
        async with place_behind(proxy) as place:
            await story(place)
        assert proxy.quiet, "not everything that was scripted has happened"

    asyncio.run(told())


# ---- what the table tells

LOSES = {
    "reply lost": Lost(),
    "500 after the commit": FailedAfter(),
    "504 after the commit": FailedAfter(504, "GatewayTimeout"),
    "a reply that is none": FailedAfter(200, "Garbled"),
    "reset before": Reset(),
    "lands late": Late(),
    "stalls": Stall(),
    "500 before": Says(500, "OperationTimedOut"),
}


@pytest.mark.case("LR11")
@pytest.mark.parametrize("fault", LOSES.values(), ids=list(LOSES))
def test_a_batch_without_a_clear_answer_is_unknown(proxy: Proxy, fault: Fault) -> None:
    """It may have been applied, or may be later; and nothing sends it twice."""

    async def story(place: Place) -> None:
        table = place.through.table
        before = proxy.asked[Kind.CHANGE]
        proxy.script(Kind.CHANGE, fault)
        with pytest.raises(Unknown):
            await table.commit("p", [Insert("a", {"n": 1})])
        assert proxy.asked[Kind.CHANGE] == before + 1
        proxy.land()
        applied = isinstance(fault, Lost | FailedAfter | Late | Stall)
        assert len(await rows_of(table, "p")) == applied

    tell(proxy, story)


RETRY_AFTER = [
    *[(None, 1.0), ("3", 3.0), ("0", 1.0), ("3600", 30.0), ("soon", 1.0), ("-5", 1.0)],
    ("Sat, 01 Jan 2000 00:00:00 GMT", 1.0),
    ("Thu, 31 Dec 9998 23:59:59 GMT", 30.0),
    ("Fri, 32 Dec 9999 23:59:59 GMT", 1.0),
]


@pytest.mark.case("TH02")
@pytest.mark.parametrize(("header", "seconds"), RETRY_AFTER, ids=str)
@pytest.mark.parametrize("status", [503, 429])
def test_a_store_that_is_busy_says_when_to_come_again(
    proxy: Proxy, header: str | None, seconds: float, status: int
) -> None:
    busy = Says(status, "ServerBusy", retry_after=header)

    async def story(place: Place) -> None:
        proxy.script(Kind.CHANGE, busy)
        proxy.script(Kind.PAGE, busy)
        with pytest.raises(Busy) as batch:
            await place.through.table.commit("p", [Insert("a", {"n": 1})])
        with pytest.raises(Busy) as page:
            await rows_of(place.through.table, "p")
        assert batch.value.retry_after == page.value.retry_after == seconds
        assert await rows_of(place.through.table, "p") == []

    tell(proxy, story)


SAYS: list[tuple[int, str, type[TableError], str]] = [
    (409, "TableBeingDeleted", Unavailable, "being deleted"),
    (404, "TableNotFound", Unusable, "blackboard init"),
    (403, "AuthorizationFailure", Unusable, "AuthorizationFailure"),
    (403, "AuthenticationFailed", Unusable, "AuthenticationFailed"),
    (403, "AccountIsDisabled", Unusable, "disabled"),
    (403, "KeyBasedAuthenticationNotPermitted", Unusable, "unset BLACKBOARD_CONNECTION_STRING"),
]


@pytest.mark.case("SO08")
@pytest.mark.parametrize("in_header", [True, False], ids=["code in a header", "in the body alone"])
@pytest.mark.parametrize(("status", "code", "kind", "words"), SAYS, ids=str)
def test_what_the_service_says_is_told_with_its_remedy(
    proxy: Proxy, *, status: int, code: str, kind: type[TableError], words: str, in_header: bool
) -> None:
    says = Says(status, code, in_header=in_header)

    async def story(place: Place) -> None:
        proxy.script(Kind.CHANGE, says)
        proxy.script(Kind.PAGE, says)
        with pytest.raises(kind) as batch:
            await place.through.table.commit("p", [Insert("a", {"n": 1})])
        with pytest.raises(kind) as page:
            await rows_of(place.through.table, "p")
        assert str(batch.value) == str(page.value)
        assert words in str(page.value)

    tell(proxy, story)


@pytest.mark.parametrize("fault", [Lost(), Reset(), Stall(), Says(500, "InternalError")], ids=str)
def test_a_page_without_an_answer_is_a_store_that_is_away(proxy: Proxy, fault: Fault) -> None:
    async def story(place: Place) -> None:
        # A read that ends with its connection is sent again by aiohttp, once.
        proxy.script(Kind.PAGE, *[fault] * (2 if isinstance(fault, Lost | Reset) else 1))
        with pytest.raises(Unavailable):
            await rows_of(place.through.table, "p")
        proxy.land()
        assert await rows_of(place.through.table, "p") == []

    tell(proxy, story)


def test_who_is_refused_a_connection_knows_that_nothing_was_applied(proxy: Proxy) -> None:
    async def story(place: Place) -> None:
        proxy.refuse()
        # The page comes first: it finds out that the connection which was kept is no more.
        for asked in (
            rows_of(place.through.table, "p"),
            place.through.table.commit("p", [Insert("a", {"n": 1})]),
        ):
            with pytest.raises(Unavailable) as away:
                await asked
            assert not isinstance(away.value, Unusable)
        proxy.up()
        assert await rows_of(place.through.table, "p") == []

    tell(proxy, story)


@pytest.mark.parametrize("count", [1, 3])
def test_empty_pages_are_not_the_end_of_a_range(proxy: Proxy, count: int) -> None:
    async def story(place: Place) -> None:
        table = place.through.table
        ops = [Insert(f"r-{n:03d}", {"n": n}) for n in range(600)]
        for number in range(0, len(ops), table.max_rows):
            await place.direct.table.commit("p", ops[number : number + table.max_rows])
        proxy.script(Kind.PAGE, EmptyPages(count), None, EmptyPages(count))
        assert [row.data["n"] for row in await rows_of(table, "p")] == list(range(600))

    tell(proxy, story)


def test_a_range_of_empty_pages_without_end_is_given_up(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(place: Place) -> None:
        monkeypatch.setattr(azure, "RANGE", 0.001)
        proxy.script(Kind.PAGE, EmptyPages(100))
        with pytest.raises(Unavailable, match="no end"):
            await rows_of(place.through.table, "p")
        proxy.calm()

    tell(proxy, story)


FAILED = Says(500, "InternalError")


@pytest.mark.parametrize("faults", [[FAILED], [Lost(), Reset()], [BUSY]], ids=str)
def test_a_command_opens_a_store_that_answers_at_a_later_try(
    proxy: Proxy, faults: list[Fault]
) -> None:
    async def story(place: Place) -> None:
        proxy.script(Kind.PAGE, *faults)
        url = f"azurite://127.0.0.1:{proxy.port}/{place.name}"
        place.tables.append(await open_table(url, TurningClock()))

    tell(proxy, story)


def test_conflicts_are_conflicts_through_a_proxy_as_well(proxy: Proxy) -> None:
    """So that what is tested here is the harm, not the proxy."""

    async def story(place: Place) -> None:
        table = place.through.table
        await table.commit("p", [Insert("a", {"n": 1})])
        ops = (Insert("a", {"n": 2}), Merge("b", {"n": 2}, ANY), Replace("a", {"n": 2}, 'W/"old"'))
        for op in ops:
            with pytest.raises(Conflict):
                await table.commit("p", [op])

    tell(proxy, story)


# ---- how the verbs settle it

HARM: dict[str, Fault] = {
    "reply lost": Lost(),
    "500 after the commit": FailedAfter(),
    "503 before": BUSY,
    "503 before, at once": Says(503, "ServerBusy", retry_after="0"),
    "reset before": Reset(),
    "stalls": Stall(),
    "lands late": Late(),
}
ME = "me"


Doubtful = Callable[[], Awaitable[object]]


async def token_of(place: Place) -> Token:
    now = await place.direct.table.now()
    (token,) = [one async for one in place.direct.walk(0, until=now) if isinstance(one, Token)]
    return token


async def held(place: Place, owner: str = ME) -> Claim:
    """The claim of the one item."""
    token = await token_of(place)
    (only,) = (await claim(place.through, [token], owner=owner)).claims
    return only


async def a_claim(place: Place) -> Doubtful:
    token = await token_of(place)
    return lambda: claim(place.through, [token], owner=ME)


async def a_renewal(place: Place) -> Doubtful:
    mine = await held(place)
    return lambda: renew(place.through, mine)


async def a_release(place: Place) -> Doubtful:
    mine = await held(place)
    return lambda: release(place.through, [finished(mine)])


async def an_override(place: Place) -> Doubtful:
    await held(place, "dead")
    lock = await place.direct.lock("davis")
    assert lock is not None
    return lambda: override(place.through, lock, owner=ME)


VERBS = {
    Kind.CLAIM: a_claim,
    Kind.RENEW: a_renewal,
    Kind.RELEASE: a_release,
    Kind.OVERRIDE: an_override,
}


@pytest.mark.case("LR01", "LR03", "LR05", "LR07", "L2")
@pytest.mark.parametrize("fault", HARM.values(), ids=list(HARM))
@pytest.mark.parametrize("kind", VERBS, ids=str)
def test_a_request_that_comes_to_harm_is_settled_within_two_reads(
    proxy: Proxy, kind: Kind, fault: Fault
) -> None:
    """What landed, then or later, is found by the next walk of whoever sent it; the item is run
    once, and the board is whole.
    """

    async def story(place: Place) -> None:
        await place.add("davis")
        doubtful = await VERBS[kind](place)
        before = proxy.asked[Kind.PAGE]
        proxy.script(kind, fault)
        with suppress(Busy):
            await doubtful()
        assert proxy.asked[Kind.PAGE] <= before + 2
        proxy.land()
        lock = await place.direct.lock("davis")
        if lock is not None and lock.owner != ME:
            await doubtful()
        await place.works(ME)
        assert await place.problems() == []

    tell(proxy, story)


@pytest.mark.parametrize("fault", [Lost(), Reset(), BUSY, EmptyPages(2)], ids=str)
def test_a_walk_that_comes_to_harm_is_done_again(proxy: Proxy, fault: Fault) -> None:
    async def story(place: Place) -> None:
        await place.add("a", "b")
        table = place.through.table
        opening = proxy.asked[Kind.PAGE]
        assert [one async for one in table.scan("nothing")] == []
        assert proxy.asked[Kind.PAGE] == opening + 1
        proxy.script(Kind.PAGE, None, None, None, fault, None, fault)  # it is opened first
        await place.works(ME)
        assert sorted(item for item, _ in place.ran) == ["a", "b"]
        assert await place.problems() == []

    tell(proxy, story)


@pytest.mark.case("LR09")
def test_a_claim_that_lands_when_nobody_thinks_of_it_is_adopted(proxy: Proxy) -> None:
    """Its sender has walked meanwhile, and seen nothing of it."""

    async def story(place: Place) -> None:
        await place.add("davis")
        token = await token_of(place)
        proxy.script(Kind.CLAIM, Late())
        assert (await claim(place.through, [token], owner=ME)).claims == ()
        assert await place.direct.lock("davis") is None
        assert proxy.land() == 1
        lock = await place.direct.lock("davis")
        assert lock is not None
        assert lock.owner == ME
        await place.works(ME)
        assert [event.id for event in place.of(LockAdopted)] == ["davis"]
        assert await place.problems() == []

    tell(proxy, story)


@pytest.mark.case("LR09")
def test_a_claim_that_lands_after_the_next_is_a_lost_race(proxy: Proxy) -> None:
    async def story(place: Place) -> None:
        await place.add("davis")
        proxy.script(Kind.CLAIM, Late())
        await place.works(ME)
        assert proxy.land() == 1
        await place.works(ME)
        assert len(place.ran) == 1
        assert await place.problems() == []

    tell(proxy, story)
