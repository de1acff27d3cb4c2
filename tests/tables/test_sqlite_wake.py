"""Changes of a file wake the workers of its host."""

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from blackboard.stores import beside, wake_workers, when_woken
from blackboard.tables.sqlite_wake import listening, wake_listeners
from tests.support.patience import patience


def sockets(file: Path) -> list[str]:
    return sorted(path.name for path in file.parent.iterdir() if "-wake-" in path.name)


@pytest.fixture(name="file", params=["short", "x" * 100 + "/" + "y" * 100])
def _file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path / str(request.param)
    folder.mkdir(parents=True)
    file = folder / "board [1].db"
    file.touch(mode=0o640)
    return file


def test_all_that_listen_are_woken_and_each_leaves_nothing(file: Path) -> None:
    async def work() -> list[int]:
        heard = [asyncio.Event(), asyncio.Event()]
        with listening(file, heard[0].set), listening(file, heard[1].set):
            modes = {stat.S_IMODE((file.parent / name).stat().st_mode) for name in sockets(file)}
            wake_listeners(file)
            async with asyncio.timeout(patience(20)):
                await asyncio.gather(*(one.wait() for one in heard))
        wake_listeners(file)
        return list(modes)

    assert asyncio.run(work()) == [file.stat().st_mode & 0o666]
    assert sockets(file) == []


def test_workers_of_several_containers_have_the_same_pid(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that takes the place of a killed one, whose socket is left."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    code = """
import asyncio, os, sys
from pathlib import Path
from blackboard.tables.sqlite_wake import listening
os.getpid = lambda: 1
async def work():
    with listening(Path(sys.argv[1]), print):
        os._exit(0)
asyncio.run(work())
"""
    subprocess.run([sys.executable, "-c", code, str(file)], check=True)
    assert len(sockets(file)) == 1
    test_all_that_listen_are_woken_and_each_leaves_nothing(file)


def test_many_changes_at_once_are_one_wake(file: Path) -> None:
    async def work() -> int:
        calls = asyncio.Queue[None]()
        with listening(file, lambda: calls.put_nowait(None)):
            for _ in range(500):  # more than the queue of a socket holds
                wake_listeners(file)
            async with asyncio.timeout(patience(20)):
                await calls.get()
            await asyncio.sleep(0)
        return 1 + calls.qsize()

    assert asyncio.run(work()) == 1


def test_a_file_is_the_same_by_whatever_link_it_is_named(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(file)

    async def work() -> None:
        heard = asyncio.Event()
        with when_woken(f"sqlite:{file}", heard.set):
            wake_workers(f"sqlite:{link}")
            async with asyncio.timeout(patience(20)):
                await heard.wait()

    asyncio.run(work())
    assert beside(str(link), "scratch.db") == str(file.parent / "scratch.db")
    assert beside("/", "scratch.db") == "/scratch.db"


def test_a_file_that_is_named_alike_is_another_one(file: Path) -> None:
    async def work() -> bool:
        other, own = asyncio.Event(), asyncio.Event()
        beside = file.with_name(f"{file.name}-2")
        beside.touch()
        with listening(beside, other.set), listening(file, own.set):
            wake_listeners(file)
            async with asyncio.timeout(patience(20)):
                await own.wait()
        return other.is_set()

    assert not asyncio.run(work())


def test_what_a_killed_worker_left_is_removed_by_the_next_change(file: Path) -> None:
    program = (
        "import asyncio, os, sys\nfrom pathlib import Path\n"
        "from blackboard.tables.sqlite_wake import listening\n"
        "async def work():\n"
        "    with listening(Path(sys.argv[1]), print):\n        os._exit(9)\n"
        "asyncio.run(work())\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(file)], check=False)
    assert done.returncode == 9
    assert len(sockets(file)) == 1
    wake_listeners(file)
    assert sockets(file) == []


def test_a_file_that_is_named_like_a_socket_is_not_removed(file: Path) -> None:
    alike = file.with_name(f"{file.name}-wake-up.txt")
    alike.write_text("notes")
    wake_listeners(file)
    assert alike.read_text() == "notes"


def test_a_program_that_can_open_no_more_files_wakes_no_worker_and_goes_on(file: Path) -> None:
    """What it has changed is done, and its worker walks on time."""
    code = """
import asyncio, resource, sys
from pathlib import Path
from blackboard.tables.sqlite_wake import listening, wake_listeners
async def work():
    file = Path(sys.argv[1])
    most = max(int(one.name) for one in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    wake_listeners(file)
    with listening(file, print):
        await asyncio.sleep(0)
asyncio.run(work())
"""
    subprocess.run([sys.executable, "-c", code, str(file)], check=True)


def test_where_there_can_be_no_socket_no_worker_is_woken(file: Path) -> None:
    """The folder is gone, or cannot be written."""
    nowhere = file.parent / "gone" / "board.db"

    async def work() -> None:
        with listening(nowhere, lambda: pytest.fail("it cannot be woken")):
            wake_listeners(nowhere)
            await asyncio.sleep(0)

    asyncio.run(work())
    assert not os.path.lexists(nowhere)
