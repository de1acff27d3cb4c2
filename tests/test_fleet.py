"""The command line that a supervisor gives each of its workers."""

import asyncio
import os

import pytest

from blackboard.cli.fleet import SUPERVISED, when_abandoned, without_processes


@pytest.mark.parametrize(
    ("arguments", "one"),
    [
        (["worker", "--processes", "3", "--jobs", "x"], ["worker", "--jobs", "x"]),
        (["--store", "s", "worker", "--processes=3"], ["--store", "s", "worker"]),
        (["worker", "--jobs", "x", "--processes", "3"], ["worker", "--jobs", "x"]),
        (["worker", "--processes", "2", "--processes=3", "-v"], ["worker", "-v"]),
        (["worker"], ["worker"]),
    ],
)
def test_a_worker_is_given_all_but_the_number_of_workers(
    arguments: list[str], one: list[str]
) -> None:
    assert without_processes(arguments) == one


def test_a_worker_that_is_not_supervised_does_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stdin may be anything, and end at once."""
    monkeypatch.delenv(SUPERVISED, raising=False)

    async def story() -> None:
        when_abandoned(lambda: pytest.fail("nobody left it"))
        assert not asyncio.get_running_loop().remove_reader(0)

    asyncio.run(story())


def test_a_worker_hears_when_its_supervisor_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once; and what it starts itself has no supervisor."""
    monkeypatch.setenv(SUPERVISED, "1")
    reader, writer = os.pipe()
    heard = 0

    async def story() -> None:
        gone = asyncio.Event()

        def stop() -> None:
            nonlocal heard
            heard += 1
            gone.set()

        when_abandoned(stop, pipe=reader)
        assert SUPERVISED not in os.environ
        os.write(writer, b".")
        os.close(writer)
        await asyncio.wait_for(gone.wait(), 10)
        await asyncio.sleep(0)

    asyncio.run(story())
    os.close(reader)
    assert heard == 1
