"""The contract of a bus, on the one in memory and on a real Redis."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from blackboard.bus import Bus
from blackboard.clock import SeededChance, SystemClock
from blackboard.rules.grab import Channel, Hash, Notified
from blackboard.sharing.redis_bus import RedisBus
from tests.support.patience import patience
from tests.support.redis_server import running_redis
from tests.support.simulated_bus import SharedBus, SimulatedBus

Story = Callable[[Callable[[str], Bus]], Awaitable[None]]
"""A test, which opens buses: those of one group share a prefix."""
Tell = Callable[[Story], None]


@pytest.fixture(params=["memory", "redis"])
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    """Runs a story on one kind of bus."""

    def tell_it(story: Story) -> None:
        if request.param == "redis":
            with running_redis(tmp_path) as server:
                asyncio.run(_told(story, lambda prefix: _on_redis(server.url, prefix)))
        else:
            groups: dict[str, SharedBus] = {}
            asyncio.run(_told(story, lambda prefix: _in_memory(groups, prefix)))

    return tell_it


def _in_memory(groups: dict[str, SharedBus], prefix: str) -> Bus:
    return SimulatedBus(groups.setdefault(prefix, SharedBus()), SystemClock(), SeededChance())


def _on_redis(url: str, prefix: str) -> Bus:
    def never(reason: str = "") -> None:
        raise AssertionError(reason)

    return RedisBus(
        url,
        prefix=prefix,
        clock=SystemClock(),
        chance=SeededChance(),
        on_away=never,
        on_back=never,
    )


async def _told(story: Story, make: Callable[[str], Bus]) -> None:
    async with AsyncExitStack() as stack:

        def open_bus(prefix: str) -> Bus:
            bus = make(prefix)
            stack.push_async_callback(bus.close)
            return bus

        await story(open_bus)


async def next_of(messages: AsyncIterator[Notified]) -> Notified:
    return await asyncio.wait_for(anext(messages), patience(10))


def test_a_field_is_written_once_and_the_answer_says_by_whom(tell: Tell) -> None:
    async def story(open_bus: Callable[[str], Bus]) -> None:
        one, other = open_bus("town.clicks"), open_bus("town.clicks")
        assert await one.get(Hash.GRAB, "07") is None
        assert await one.set_if_absent(Hash.GRAB, "07", "fox") == "fox"
        assert await other.set_if_absent(Hash.GRAB, "07", "owl") == "fox"
        assert await one.set_if_absent(Hash.GRAB, "07", "fox") == "fox"
        assert await other.get(Hash.GRAB, "07") == "fox"

    tell(story)


def test_of_many_racers_one_wins(tell: Tell) -> None:
    async def story(open_bus: Callable[[str], Bus]) -> None:
        buses = [open_bus("town.clicks") for _ in range(5)]
        names = [f"node {number}" for number in range(50)]
        winners = await asyncio.gather(
            *(buses[at % 5].set_if_absent(Hash.GRAB, "07", name) for at, name in enumerate(names))
        )
        assert len(set(winners)) == 1
        assert await buses[0].get(Hash.GRAB, "07") == winners[0]

    tell(story)


def test_a_field_is_cleared_if_it_has_the_value(tell: Tell) -> None:
    async def story(open_bus: Callable[[str], Bus]) -> None:
        bus = open_bus("town.clicks")
        assert await bus.drop_if(Hash.ALLOCATION, "07", "fox") is False
        await bus.put(Hash.ALLOCATION, "07", "fox")
        await bus.put(Hash.ALLOCATION, "07", "owl")
        assert await bus.drop_if(Hash.ALLOCATION, "07", "fox") is False
        assert await bus.get(Hash.ALLOCATION, "07") == "owl"
        assert await bus.drop_if(Hash.ALLOCATION, "07", "owl") is True
        assert await bus.get(Hash.ALLOCATION, "07") is None
        assert await bus.set_if_absent(Hash.ALLOCATION, "07", "elk") == "elk"

    tell(story)


def test_hashes_fields_and_groups_are_apart(tell: Tell) -> None:
    async def story(open_bus: Callable[[str], Bus]) -> None:
        bus, other_group = open_bus("town.clicks"), open_bus("town.mails")
        await bus.put(Hash.ALLOCATION, "07", "fox")
        assert await bus.get(Hash.GRAB, "07") is None
        assert await bus.get(Hash.ALLOCATION, "08") is None
        assert await other_group.get(Hash.ALLOCATION, "07") is None

    tell(story)


def test_names_are_any_text(tell: Tell) -> None:
    async def story(open_bus: Callable[[str], Bus]) -> None:
        bus = open_bus("town.clicks")
        field, value = 'Zürich "7"\r\n', "host:7301:ŝ*{}"
        await bus.put(Hash.ALLOCATION, field, value)
        assert await bus.get(Hash.ALLOCATION, field) == value
        async with bus.listen() as messages:
            await bus.publish(Channel.ALLOCATED, field)
            assert await next_of(messages) == Notified(Channel.ALLOCATED, field)

    tell(story)


def test_a_message_reaches_all_listeners_of_its_group_in_order(tell: Tell) -> None:
    async def story(open_bus: Callable[[str], Bus]) -> None:
        one, other, apart = (open_bus(name) for name in ("town.a", "town.a", "town.b"))
        sent = [Notified(list(Channel)[number % 2], f"{number:02}") for number in range(20)]
        async with one.listen() as first, other.listen() as second, apart.listen() as third:
            for message in sent:
                await one.publish(message.channel, message.partition)
            await apart.publish(Channel.ALLOCATED, "own")
            assert [await next_of(first) for _ in sent] == sent
            assert [await next_of(second) for _ in sent] == sent
            assert await next_of(third) == Notified(Channel.ALLOCATED, "own")

    tell(story)


def test_messages_before_and_after_listening_are_not_received(tell: Tell) -> None:
    async def story(open_bus: Callable[[str], Bus]) -> None:
        bus = open_bus("town.clicks")
        await bus.publish(Channel.GRAB_LEASE, "before")
        async with bus.listen() as messages:
            await bus.publish(Channel.GRAB_LEASE, "while")
            assert (await next_of(messages)).partition == "while"
        await bus.publish(Channel.GRAB_LEASE, "after")
        async with bus.listen() as messages:
            await bus.publish(Channel.GRAB_LEASE, "again")
            assert (await next_of(messages)).partition == "again"

    tell(story)
