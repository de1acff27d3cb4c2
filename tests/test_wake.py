"""When a worker wakes: by the beat, by a wish, or at once."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

from blackboard.simulator.timeline import ProcessLoop, Timeline
from blackboard.wake import CycleWake

LONG = 3600.0
PATIENCE = 10.0


def waking(story: Callable[[CycleWake], Awaitable[None]], *, cycle: float = LONG) -> None:
    async def told() -> None:
        wake = CycleWake(cycle)
        wake.start()
        try:
            await asyncio.wait_for(story(wake), PATIENCE)
        finally:
            wake.stop()

    asyncio.run(told())


def test_it_wakes_again_and_again_with_the_cycle() -> None:
    async def story(wake: CycleWake) -> None:
        for _ in range(3):
            assert await wake.wait(), "it was a beat"

    waking(story, cycle=0.05)


def test_it_wakes_at_the_earliest_wish() -> None:
    async def story(wake: CycleWake) -> None:
        wake.within(LONG)
        wake.within(0.01)
        wake.within(LONG / 2)
        assert not await wake.wait(), "it was no beat"

    waking(story)


def test_a_wish_holds_until_the_next_waking() -> None:
    async def story(wake: CycleWake) -> None:
        wake.within(0.01)
        wake.now()
        await wake.wait()
        waiting = asyncio.ensure_future(wake.wait())
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
        wake.now()
        await waiting

    waking(story)


def test_a_wish_of_the_past_is_at_once() -> None:
    async def story(wake: CycleWake) -> None:
        wake.within(-5)
        await wake.wait()

    waking(story)


def test_who_is_woken_while_awake_does_not_fall_asleep() -> None:
    """And only once: what was said twice was heard."""

    async def story(wake: CycleWake) -> None:
        wake.now()
        wake.now()
        await wake.wait()
        waiting = asyncio.ensure_future(wake.wait())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()

    waking(story)


def test_a_beat_is_given_in_the_loop_itself() -> None:
    """Another thread may not set an event, and could be kept waiting until the worker stops."""

    async def story() -> None:
        wake = CycleWake(0.05)
        threads: list[int] = []
        wake._event.set = lambda: threads.append(threading.get_ident())  # type: ignore[method-assign]
        wake.start()
        async with asyncio.timeout(30):
            while not threads:  # noqa: ASYNC110 - nothing else says so
                await asyncio.sleep(0.01)
        wake.stop()
        assert set(threads) == {threading.get_ident()}

    asyncio.run(story())


def test_it_wakes_within_a_cycle_when_the_wall_clock_was_set_back() -> None:
    """APScheduler then waits for a moment that is a day away: here it never comes at all."""
    timeline = Timeline()
    woken: list[float] = []

    async def worker() -> None:
        wake = CycleWake(LONG)
        for _ in range(3):
            await wake.wait()
            woken.append(timeline.now)

    ProcessLoop(timeline).spawn(worker())
    timeline.run(10 * LONG)
    assert woken == [LONG, 2 * LONG, 3 * LONG]
