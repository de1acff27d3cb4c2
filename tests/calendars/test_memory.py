"""What the readers of feeds may take together, of all runs of a host."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from blackboard import BadInput
from jobs.calendars.params import LEAST, MEMORY, JobSettings, job_settings
from jobs.calendars.parser_pool import ParserPool, SharedPlaces
from jobs.calendars.records import Ask
from tests.calendars.serving import Answer, serving
from tests.calendars.support import LOCAL, aggregate, calendar, event, report, window
from tests.support.patience import patience

ONE = calendar(event("1", "One"))
ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20


@pytest.mark.parametrize(
    ("said", "memory", "readers"),
    [
        (None, MEMORY, 2),
        ("512MiB", 512 * MIB, 2),
        ("1 GiB", 1024 * MIB, 2),
        ("1g", 1024 * MIB, 2),
        ("262144 k", 256 * MIB, 2),
        (255 * MIB, 255 * MIB, 1),
        ("128M", LEAST, 1),
    ],
)
def test_the_memory_of_all_readers_is_said_once(
    said: str | int | None, memory: int, readers: int
) -> None:
    settings = job_settings({} if said is None else {"memory": said})
    assert (settings.memory, settings.readers) == (memory, readers)


@pytest.mark.parametrize("said", ["lots", "", "512", "-1MiB", True, None, 1.5, [], "1k", 1000, -1])
def test_a_memory_that_is_none_is_refused_by_name(said: object) -> None:
    with pytest.raises(BadInput, match=r"jobs\.calendars\.memory"):
        job_settings({"memory": said})


@pytest.mark.parametrize("said", ["soon", 3, "0s"])
def test_a_deadline_that_is_none_is_refused_by_name(said: object) -> None:
    with pytest.raises(BadInput, match=r"jobs\.calendars\.deadline"):
        job_settings({"deadline": said})
    assert job_settings({"deadline": "90s"}).deadline == 90


def test_a_setting_that_means_nothing_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match=r"^jobs\.calendars\.memroy: .*it takes allow, memory"):
        job_settings({"memroy": "2GiB"})


def test_no_reader_may_take_more_than_its_part() -> None:
    """The kernel refuses it more, so whatever a feed holds, all readers stay within the whole."""
    settings = JobSettings()

    async def limits() -> list[int]:
        part = settings.memory // settings.readers
        async with ParserPool(size=settings.readers, deadline=30, memory=part) as parsers:
            await asyncio.gather(*(parsers.parse(ONE, Ask(window())) for _one in range(2)))
            children = psutil.Process().children()
            readers = [
                one for one in children if "main(int(sys.argv[2])" in " ".join(one.cmdline())
            ]
            return [one.rlimit(resource.RLIMIT_AS)[1] for one in readers]

    found = asyncio.run(limits())
    assert found
    assert len(found) <= settings.readers
    assert sum(found) <= MEMORY


def test_a_reader_asks_for_no_more_than_the_system_lets_it_have() -> None:
    program = textwrap.dedent(
        """
        import os, resource
        from jobs.calendars.parser import main
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        main(os.getppid(), 2 << 30, 60)
        print(resource.getrlimit(resource.RLIMIT_AS))
        """
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == f"({1 << 30}, {1 << 30})\n"


def test_places_that_another_user_has_made_and_holds_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> int:
        theirs = SharedPlaces(1, tmp_path)
        taken = await theirs.take()
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        places = SharedPlaces(1, tmp_path)
        async with asyncio.timeout(patience(2.0)):
            held = await places.take()
        places.free(held)
        theirs.free(taken)
        return held

    assert asyncio.run(run()) == -1


def test_runs_of_one_host_share_the_places_of_readers(tmp_path: Path) -> None:
    """Two runs with two readers each, and no more than two readers at any time."""
    under_way = most = 0

    async def run(places: SharedPlaces) -> None:
        nonlocal under_way, most
        held = await places.take()
        under_way += 1
        most = max(most, under_way)
        for _turn in range(5):
            await asyncio.sleep(0)
        under_way -= 1
        places.free(held)

    async def go() -> None:
        runs = [SharedPlaces(2, tmp_path) for _run in range(3)]
        await asyncio.gather(*(run(one) for one in runs for _feed in range(4)))

    asyncio.run(go())
    assert most == 2
    assert list(tmp_path.iterdir()) == []


def test_the_place_of_a_run_that_was_killed_is_free(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import asyncio, sys, threading
        from pathlib import Path
        from jobs.calendars.parser_pool import SharedPlaces
        asyncio.run(SharedPlaces(1, Path(sys.argv[1])).take())
        print("held", flush=True)
        threading.Event().wait()
        """
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"

        async def go() -> None:
            places = SharedPlaces(1, tmp_path)
            waiting = asyncio.create_task(places.take())
            assert not (await asyncio.wait([waiting], timeout=0.2))[0]
            os.kill(holder.pid, signal.SIGKILL)
            places.free(await waiting)

        asyncio.run(go())
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["missing", "file"])
def test_a_folder_that_cannot_be_used_leaves_a_run_its_own_places(
    tmp_path: Path, folder: str
) -> None:
    (tmp_path / "file").touch()

    async def go() -> None:
        places = SharedPlaces(1, tmp_path / folder)
        held = await places.take()
        other = asyncio.create_task(places.take())
        assert not (await asyncio.wait([other], timeout=0.1))[0]
        places.free(held)
        places.free(await other)

    asyncio.run(go())


def test_a_reader_that_may_have_grown_is_replaced(tmp_path: Path) -> None:
    """After a large feed; not after one that was only refused."""
    large = calendar(*(event(str(n), "x" * 500) for n in range(1500)))

    async def go() -> list[int]:
        pids = []
        async with ParserPool(size=1, deadline=30, memory=256 * MIB, folder=tmp_path) as parsers:
            for body in (ONE, ONE, large, ONE, b"no calendar", ONE):
                await parsers.parse(body, Ask(window()))
                pids.append(len(parsers._idle))
        return pids

    assert asyncio.run(go()) == [1, 1, 0, 1, 1, 1]
    assert list(tmp_path.iterdir()) == []


def test_a_reader_without_a_feed_gives_its_place_to_another_run(tmp_path: Path) -> None:
    async def go() -> None:
        async with ParserPool(size=1, deadline=30, memory=256 * MIB, folder=tmp_path) as first:
            await first.parse(ONE, Ask(window()))
            async with ParserPool(size=1, deadline=30, memory=256 * MIB, folder=tmp_path) as second:
                assert (await second.parse(ONE, Ask(window()))).seen == 1
                assert not first._all
            assert (await first.parse(ONE, Ask(window()))).seen == 1

    asyncio.run(go())
    assert list(tmp_path.iterdir()) == []


def test_the_events_of_a_city_are_bounded_together(tmp_path: Path) -> None:
    """Each of these feeds has some 1.5 MiB of text; a quarter of the memory is 4 MiB."""
    body = calendar(
        *(event(str(n), "x", "20260901", "DESCRIPTION:" + "d" * 30_000) for n in range(50))
    )
    settings = replace(LOCAL, memory=16 * MIB, readers=1)
    with serving({f"/{n}": Answer(body) for n in range(3)}) as site:
        feeds = [site.url(f"/{n}") for n in range(3)]
        for _again in range(2):
            summary = aggregate(tmp_path, feeds, settings=settings)
            assert (summary["ok"] + summary["unchanged"], summary["failed"]) == (2, 1)
    errors = {one["error"] for one in report(tmp_path).values()}
    assert errors == {"", "with it the city's events would take more than 4 MiB"}


def test_the_events_of_feeds_that_fail_are_counted_with_those_of_the_city(tmp_path: Path) -> None:
    """Whichever feed answers first: those that answer later, or fail, keep their events."""
    body = calendar(
        *(event(str(n), "x", "20260901", "DESCRIPTION:" + "d" * 30_000) for n in range(50))
    )
    settings = replace(LOCAL, memory=16 * MIB, readers=1)
    paths = [f"/{n}" for n in range(3)]
    with serving({path: Answer(body) for path in paths}) as site:
        feeds = [site.url(path) for path in paths]
        aggregate(tmp_path, feeds, settings=settings)
        good = [name for name, told in report(tmp_path).items() if not told["error"]]
        site.answers[f"/{good[0]}"] = Answer(status=503)
        assert aggregate(tmp_path, feeds, settings=settings)["failed"] == 2
