"""The processes that read feeds: killable, replaceable, and gone with their parent."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from blackboard.clock import SystemClock
from jobs.calendars.parser_pool import ParserPool
from jobs.calendars.records import Ask
from tests.calendars.support import calendar, event, times, window
from tests.support.patience import patience

ONE = calendar(event("1", "One"))
ROOT = Path(__file__).resolve().parents[2]
# Nothing that is refused, only more than can be read in half a second.
LONG = "RRULE:FREQ=DAILY;COUNT=99999"
HEAVY = calendar(*(event(str(n), "S", "19000101T180000Z", LONG) for n in range(400)))


def children() -> list[psutil.Process]:
    """The parsers of this process, not what other tests have started."""
    found = psutil.Process().children()
    return [one for one in found if "calendars_child" in " ".join(one.cmdline())]


def test_a_feed_is_read_and_the_process_used_again() -> None:
    async def go() -> None:
        async with ParserPool(size=1, deadline=30, memory=2 << 30) as parsers:
            first = await parsers.parse(ONE, Ask(window()))
            (process,) = children()
            second = await parsers.parse(ONE, Ask(window(), known=first.meaning))
            assert [one.pid for one in children()] == [process.pid]
        assert times(first) == [("One", "2026-09-01T18:00:00Z", "2026-09-01T18:00:00Z")]
        assert second.same

    asyncio.run(go())
    assert children() == []


def test_how_a_reader_ended_is_known_also_where_its_end_is_noticed_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python asks for it in a thread, which may do so later than the end of the output comes."""
    waitpid = os.waitpid

    def late(pid: int, options: int) -> tuple[int, int]:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(2.0)
        return waitpid(pid, options)

    monkeypatch.setattr(os, "waitpid", late)

    async def go() -> None:
        async with ParserPool(size=1, deadline=0.5, memory=2 << 30) as parsers:
            slow = await parsers.parse(HEAVY, Ask(window()))
            assert slow.error == "takes more than 0.5 s of processor time to read"

    asyncio.run(go())


def test_a_feed_beyond_its_deadline_is_an_answer_and_the_next_is_read() -> None:
    async def go() -> None:
        async with ParserPool(size=1, deadline=0.5, memory=2 << 30) as parsers:
            slow = await parsers.parse(HEAVY, Ask(window()))
            assert slow.error == "takes more than 0.5 s of processor time to read"
        async with ParserPool(size=1, deadline=30, memory=2 << 30) as parsers:
            assert len((await parsers.parse(ONE, Ask(window()))).occurrences) == 1

    asyncio.run(go())
    assert children() == []


def test_a_feed_is_refused_for_the_processor_time_that_it_takes_not_for_its_wait() -> None:
    """A busy host lets a reader wait."""

    async def go() -> None:
        async with ParserPool(size=1, deadline=0.3, memory=2 << 30) as parsers:
            await parsers.parse(ONE, Ask(window()))
            (process,) = children()
            process.suspend()
            asyncio.get_running_loop().call_later(0.4, process.resume)
            assert len((await parsers.parse(ONE, Ask(window()))).occurrences) == 1

    asyncio.run(go())


def test_a_feed_whose_reader_stands_still_is_an_answer() -> None:
    async def go() -> None:
        async with ParserPool(size=1, deadline=30, memory=2 << 30, longest=0.1) as parsers:
            still = await parsers.parse(ONE, Ask(window()), begins=stop)
            assert still.error == "takes more than 0.1 s to read"

    def stop() -> None:
        for process in children():
            process.suspend()

    asyncio.run(go())
    assert children() == []


def test_a_reader_that_dies_is_an_answer_and_the_next_is_read() -> None:
    async def go() -> None:
        async with ParserPool(size=1, deadline=30, memory=2 << 30) as parsers:
            await parsers.parse(ONE, Ask(window()))
            (process,) = children()
            os.kill(process.pid, signal.SIGKILL)
            died = await parsers.parse(ONE, Ask(window()))
            # How is not known where other code of this process has reaped it.
            assert died.error in {
                "its reader died: killed by SIGKILL",
                "its reader died: exit code 255",
            }
            assert not (await parsers.parse(ONE, Ask(window()))).error

    asyncio.run(go())


@pytest.mark.skipif(sys.platform != "linux", reason="as the files of Linux's /proc say")
def test_a_reader_gets_the_signals_that_the_program_blocks() -> None:
    """The timer that ends a bad rule is a signal, and the mask of signals is inherited."""

    async def go() -> None:
        async with ParserPool(size=1, deadline=30, memory=2 << 30) as parsers:
            await parsers.parse(ONE, Ask(window()))
            (process,) = children()
            status = await asyncio.to_thread(Path(f"/proc/{process.pid}/status").read_text)
            assert int(status.partition("SigBlk:")[2].split()[0], 16) == 0

    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGVTALRM])
    try:
        asyncio.run(go())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_a_feed_that_needs_too_much_memory_is_an_answer() -> None:
    async def go() -> str:
        async with ParserPool(size=1, deadline=60, memory=60 << 20) as parsers:
            events = [event(str(n), "S" * 1000, "20260901T180000Z") for n in range(12_000)]
            return (await parsers.parse(calendar(*events), Ask(window()))).error

    assert asyncio.run(go()).startswith(("needs more than 60 MiB", "its reader died"))


def test_a_cancelled_run_leaves_no_process() -> None:
    async def go() -> None:
        async with ParserPool(size=2, deadline=30, memory=2 << 30) as parsers:
            task = asyncio.ensure_future(parsers.parse(HEAVY, Ask(window())))
            await asyncio.to_thread(_wait_for_a_child)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert children() == []

    asyncio.run(go())


@pytest.mark.skipif(sys.platform != "linux", reason="children learn of it by a Linux signal")
def test_a_killed_parent_takes_its_readers_along() -> None:
    program = textwrap.dedent(
        """
        import asyncio
        from jobs.calendars.parser_pool import ParserPool
        from jobs.calendars.records import Ask
        from tests.calendars.support import window
        from tests.calendars.test_parsers import HEAVY

        async def go():
            async with ParserPool(size=1, deadline=60, memory=2 << 30) as parsers:
                await parsers.parse(HEAVY, Ask(window()))

        asyncio.run(go())
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    try:
        reader = _first_child(psutil.Process(parent.pid))
    finally:
        parent.kill()
        parent.wait()
    psutil.wait_procs([reader], timeout=patience(10))
    assert not reader.is_running() or reader.status() == psutil.STATUS_ZOMBIE


def _wait_for_a_child() -> None:
    deadline = SystemClock().monotonic() + patience(20)
    while not children():
        assert SystemClock().monotonic() < deadline


def _first_child(parent: psutil.Process) -> psutil.Process:
    """Waits until it reads: by then it has asked to die with its parent."""
    deadline = SystemClock().monotonic() + patience(20)
    while True:
        assert SystemClock().monotonic() < deadline
        for child in parent.children():
            if child.cpu_times().user > 0.5:
                return child
        assert not psutil.wait_procs([parent], timeout=0.02)[0]
