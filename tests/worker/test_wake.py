"""When a worker wakes: by the beat, by a wish, or at once."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from apscheduler.schedulers import base

from blackboard.clock import SeededChance
from blackboard.simulator.processes import ProcessLoop, Timeline
from blackboard.worker.wake import SPREAD, Beat, CycleWake
from tests.support.patience import patience

LONG = 3600.0
PATIENCE = patience(10.0)


def waking(story: Callable[[CycleWake], Awaitable[None]], *, cycle: float = LONG) -> None:
    async def told() -> None:
        wake = CycleWake(cycle, SeededChance())
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


def test_it_writes_nothing_into_the_log_of_a_program(caplog: pytest.LogCaptureFixture) -> None:
    async def story(wake: CycleWake) -> None:
        await wake.wait()

    with caplog.at_level(logging.INFO):
        waking(story, cycle=0.05)
    assert caplog.messages == []


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


def test_what_is_due_now_is_no_timer_on_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its `call_at` returns what `call_soon` does, a handle without `when`."""

    async def story(wake: CycleWake) -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "call_at", lambda _, call: loop.call_soon(call))
        wake.within(0.0)
        assert not await wake.wait(), "it was no beat"

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
        wake = CycleWake(0.05, SeededChance())
        threads: list[int] = []
        wake._event.set = lambda: threads.append(threading.get_ident())  # type: ignore[method-assign]
        wake.start()
        async with asyncio.timeout(patience(30)):
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
        wake = CycleWake(LONG, SeededChance())
        for _ in range(3):
            await wake.wait()
            woken.append(timeline.now)

    ProcessLoop(timeline).spawn(worker())
    timeline.run(10 * LONG)
    assert woken == [LONG, 2 * LONG, 3 * LONG]


class JumpingDatetime(datetime):
    """The wall clock as APScheduler reads it."""

    jump = timedelta(0)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + cls.jump


TEN_YEARS = timedelta(days=3653)


@pytest.mark.parametrize("jump", [TEN_YEARS, -TEN_YEARS], ids=["forwards", "backwards"])
def test_a_jump_of_the_wall_clock_costs_one_beat_and_they_go_on(
    jump: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The beats of ten years are not walked through, and the next is not ten years away."""
    asked: list[datetime] = []
    honest = Beat.get_next_fire_time

    def noted(beat: Beat, previous: datetime | None, now: datetime) -> datetime:
        asked.append(now)
        return honest(beat, previous, now)

    monkeypatch.setattr(Beat, "get_next_fire_time", noted)
    monkeypatch.setattr(base, "datetime", JumpingDatetime)
    monkeypatch.setattr(JumpingDatetime, "jump", timedelta(0))

    async def story(wake: CycleWake) -> None:
        assert await wake.wait(), "it was a beat"
        before = len(asked)
        JumpingDatetime.jump = jump
        for _ in range(4):
            assert await wake.wait(), "it was a beat"
        assert len(asked) - before <= 8
        planned = asked[-1] - datetime.now(UTC)
        assert abs(planned - jump) < timedelta(minutes=1), "it goes by the clock as it is now"

    waking(story, cycle=0.05)


@pytest.mark.parametrize("jump", [timedelta(0), TEN_YEARS, -TEN_YEARS])
@pytest.mark.parametrize("since", [None, timedelta(0)])
def test_the_next_beat_is_within_a_cycle_of_now_whatever_was_before(
    since: timedelta | None, jump: timedelta
) -> None:
    now = datetime(2026, 11, 21, 9, tzinfo=UTC)
    beat = Beat(60.0, SeededChance(1))
    pauses = [
        beat.get_next_fire_time(None if since is None else now - jump, now) - now
        for _ in range(1000)
    ]
    assert min(pauses) >= timedelta(seconds=60 * (1 - 2 * SPREAD))
    assert max(pauses) <= timedelta(seconds=60)
    assert max(pauses) - min(pauses) > timedelta(seconds=5)
