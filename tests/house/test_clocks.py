"""The clocks and the chance of the product, and those that tests turn by hand."""

import asyncio
import os
import random
from datetime import timedelta

import pytest

from blackboard.clock import Chance, Clock, SystemChance, SystemClock
from tests.support.clocks import START, ManualClock, SeededChance


def test_a_sleeper_wakes_when_its_time_has_come() -> None:
    async def story() -> list[str]:
        clock = ManualClock()
        woken: list[str] = []

        async def sleeper(name: str, seconds: float) -> None:
            await clock.sleep(seconds)
            woken.append(name)

        tasks = [
            asyncio.create_task(sleeper(name, seconds))
            for name, seconds in (("late", 60.0), ("early", 10.0), ("cancelled", 5.0), ("now", 0.0))
        ]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.wait([tasks[2], tasks[3]])
        assert woken == ["now"]
        clock.advance(9.9)
        await asyncio.sleep(0)
        assert woken == ["now"]
        clock.advance(50.1)
        await asyncio.wait([tasks[0], tasks[1]])
        return woken

    assert asyncio.run(story()) == ["now", "early", "late"]


def test_a_jump_moves_the_wall_clock_alone() -> None:
    clock = ManualClock()
    clock.jump(-3600)
    assert (clock.now(), clock.monotonic()) == (START - timedelta(hours=1), 1000.0)
    clock.advance(1.5)
    assert clock.now() == START - timedelta(hours=1) + timedelta(seconds=1.5)
    assert clock.monotonic() == 1001.5


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()])
def test_wall_time_is_utc_in_whole_milliseconds(clock: Clock) -> None:
    now = clock.now()
    assert now.utcoffset() == timedelta(0)
    assert now.microsecond % 1000 == 0


@pytest.mark.parametrize("chance", [SystemChance(), SeededChance()])
def test_a_nonce_is_drawn_afresh(chance: Chance) -> None:
    nonces = {chance.nonce() for _ in range(100)}
    assert len(nonces) == 100
    assert {len(nonce) for nonce in nonces} == {32}
    assert all(0 <= chance.fraction() < 1 for _ in range(100))


def test_chance_with_one_seed_repeats_itself() -> None:
    draws = [(chance.nonce(), chance.fraction()) for chance in (SeededChance(7), SeededChance(7))]
    assert draws[0] == draws[1]
    assert SeededChance(8).nonce() != draws[0][0]


def test_handlers_that_seed_the_generator_of_their_process_do_so_for_themselves_alone() -> None:
    """Or the pauses of all workers would be the same, and what such a handler draws would not."""
    drawn = set[tuple[float, float]]()
    state = random.getstate()
    try:
        for _ in range(2):
            random.seed(1)
            drawn.add((SystemChance().fraction(), random.random()))
    finally:
        random.setstate(state)
    ours, of_handlers = zip(*drawn, strict=True)
    assert (len(set(ours)), len(set(of_handlers))) == (2, 1)


def test_processes_that_are_forked_draw_other_fractions() -> None:
    def drawn_in_child() -> bytes:
        here, there = os.pipe()
        if (child := os.fork()) == 0:
            os.write(there, repr(SystemChance().fraction()).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(there)
        with os.fdopen(here, "rb") as drawn:
            return drawn.read()

    assert len({drawn_in_child() for _ in range(3)}) == 3


def test_the_system_clock_sleeps_nothing_for_nothing() -> None:
    asyncio.run(SystemClock().sleep(0))
