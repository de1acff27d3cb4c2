"""The pump `tail`: files, their lines, and real commands that are given them."""

import asyncio
import json
import logging
import os
import re
import shlex
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import blackboard
from blackboard import BadInput, Context, Item
from blackboard.handlers.registry import load
from blackboard.tables.azure_address import CONNECTION_STRING
from jobs import tail
from jobs.tail import (
    LONGEST_LINE,
    Batch,
    CannotFollow,
    CommandFailed,
    Place,
    files_of,
    follow,
    lines_at,
    next_lines,
    settings_of,
)
from tests.support.processes import eventually, is_gone, site, whole_lines
from tests.support.runs import DUE, PATIENCE

TAKES = """
import os, sys
with open("taken", "a") as taken:
    for line in sys.stdin:
        taken.write(f"{os.environ['BLACKBOARD_POSITION']} {line}")
"""


class Asked:
    """`ctx.stopping`, until the test says so."""

    reason = ""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        self._event.set()

    async def wait(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - as in threads
        return self._event.is_set()


def context(saved: list[Any], **settings: Any) -> Context:
    async def save(value: Any) -> None:
        saved.append(value)

    return Context(
        due=DUE,
        fence=7,
        attempt=1,
        worker="host:1:nonce",
        settings=settings,
        log=logging.getLogger("tail"),
        lost=Asked(),
        stopping=Asked(),
        progress=lambda _done, _total: None,
        warn=lambda _text: None,
        checkpoint=saved[-1] if saved else None,
        save=save,
    )


def takes(tmp_path: Path) -> list[str]:
    (tmp_path / "takes.py").write_text(TAKES)
    return [sys.executable, "takes.py"]


async def followed(file: Path, saved: list[Any], until: Callable[[], bool], **table: Any) -> None:
    """Follow a file until something holds."""
    ctx = context(saved, **table)
    task = asyncio.create_task(follow(Item(str(file), "tail", {}), ctx))
    async with asyncio.timeout(PATIENCE):
        while not until() and not task.done():
            await asyncio.wait([task], timeout=0.01)
    ctx.stopping.set()  # type: ignore[attr-defined]
    await task


def test_lines_are_given_whole_in_order_and_once_over_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file, saved = tmp_path / "a.log", list[Any]()
    table = {"files": [str(tmp_path / "*.log")], "command": takes(tmp_path), "batch": 8}
    file.write_text("one\ntwo\nthree\nfo")
    asyncio.run(followed(file, saved, lambda: positions(saved)[-1:] == [14], **table))
    with file.open("a") as log:
        log.write("ur\na long line\n")
    asyncio.run(followed(file, saved, lambda: positions(saved)[-1:] == [31], **table))
    assert (tmp_path / "taken").read_text().splitlines() == [
        *("0 one", "0 two", "8 three", "14 four", "19 a long line")
    ]
    assert positions(saved) == sorted(positions(saved))


def positions(saved: list[Any]) -> list[int]:
    return [one["position"] for one in saved]


def rotated(file: Path) -> None:
    file.rename(file.with_name("a.1"))
    file.write_text("new 1\nnew 2 is longer than all that was read\n")


def copied_and_emptied(file: Path) -> None:
    text = file.read_text()
    file.with_name("a.1").write_text(text)
    file.write_text("new 1\nnew 2 is longer than all that was read\n")


@pytest.mark.parametrize(
    ("rotate", "unread"), [(rotated, ["8 old 2", "14 old 3"]), (copied_and_emptied, [])]
)
def test_a_file_that_is_rotated_is_read_to_its_end_and_the_new_one_from_its_beginning(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rotate: Callable[[Path], None],
    unread: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    file, saved = tmp_path / "a.log", list[Any]()
    table = {"files": ["*.log"], "command": takes(tmp_path), "batch": 8}
    file.write_text("old one\n")
    asyncio.run(followed(file, saved, lambda: positions(saved) == [0, 8], **table))
    with file.open("a") as log:
        log.write("old 2\nold 3\n")
    rotate(file)
    end = file.stat().st_size
    asyncio.run(followed(file, saved, lambda: positions(saved)[-1] == end, **table))
    assert (tmp_path / "taken").read_text().splitlines() == [
        *("0 old one", *unread, "0 new 1", "6 new 2 is longer than all that was read")
    ]


def test_what_is_still_written_to_a_file_that_was_moved_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer has it open until it is told of the new one."""
    monkeypatch.chdir(tmp_path)
    file, saved = tmp_path / "a.log", list[Any]()
    table = {"files": ["*.log"], "command": takes(tmp_path)}
    with file.open("w") as log:
        log.write("one\n")
        log.flush()
        asyncio.run(followed(file, saved, lambda: positions(saved) == [0, 4], **table))
        file.rename(tmp_path / "a.1")
        file.touch()
        log.write("two\nend")
    asyncio.run(followed(file, saved, lambda: positions(saved) == [0, 4, 8], **table))
    file.unlink()
    waits = Batch(behind=Place(**saved[-1]), searched=3)
    assert next_lines(str(file), waits.behind, 10) == waits
    file.write_text("three\n")
    asyncio.run(followed(file, saved, lambda: positions(saved) == [0, 4, 8, 11, 0, 6], **table))
    assert (tmp_path / "taken").read_text() == "0 one\n4 two\n8 end\n0 three\n"


def test_a_last_line_that_is_completed_while_it_is_looked_at_is_a_line_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.log"
    file.write_text("one\nhalf")
    place = next_lines(str(file), Place(), 12).behind
    place = next_lines(str(file), place, 12).behind
    file.rename(tmp_path / "a.1")
    file.write_text("new\n")
    last_line = tail._last_line

    def completed(*about: Any) -> Batch:
        with (tmp_path / "a.1").open("a") as log:
            log.write(" done\nmore\n")
        monkeypatch.setattr(tail, "_last_line", last_line)
        return last_line(*about)

    monkeypatch.setattr(tail, "_last_line", completed)
    taken = list[bytes]()
    while not taken or taken[-1] != b"new\n":
        found = next_lines(str(file), place, 12)
        taken, place = [*taken, *filter(None, [found.lines])], found.behind
    assert taken == [b"half done\n", b"more\n", b"new\n"]


def test_what_another_program_saved_is_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file, saved = tmp_path / "a.log", list[Any]([7])
    file.write_text("one\n")
    table = {"files": ["*.log"], "command": takes(tmp_path)}
    asyncio.run(followed(file, saved, lambda: len(saved) == 3, **table))
    assert (tmp_path / "taken").read_text() == "0 one\n"


@pytest.mark.parametrize(
    ("checkpoint", "words"),
    [
        ("x", "its checkpoint 'x' is not a place in a file"),
        ([1], "its checkpoint [1] is not a place in a file"),
        ({"position": "4"}, "its checkpoint {'position': '4'} is not a place in a file"),
        ({"position": -5}, "its checkpoint {'position': -5} has a number that is out of range"),
        ({"position": 2**64}, "out of range"),
        ({"position": 900, "inode": 0, "head": "h"}, "it has 4 bytes, and was read on at byte 900"),
        ({"position": 2, "inode": 0, "head": "h"}, "its beginning is not the one that its"),
    ],
)
def test_a_checkpoint_that_is_no_place_is_named_in_one_warning_and_the_file_read_from_its_beginning(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    checkpoint: Any,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    file, saved = tmp_path / "a.log", list[Any]()
    file.write_text("one\n")
    if isinstance(checkpoint, dict) and "inode" in checkpoint:
        checkpoint = {**checkpoint, "inode": file.stat().st_ino}
    saved.append(checkpoint)
    table = {"files": ["*.log"], "command": takes(tmp_path)}
    caplog.set_level(logging.INFO)

    def is_read() -> bool:
        return isinstance(saved[-1], dict) and saved[-1]["position"] == 4

    asyncio.run(followed(file, saved, is_read, **table))
    assert (tmp_path / "taken").read_text() == "0 one\n"
    assert [one.levelname for one in caplog.records] == ["WARNING"]
    assert f"{file} is read from its beginning: " in caplog.text
    assert words in caplog.text
    assert "was made anew" not in caplog.text


def test_a_file_that_became_shorter_is_read_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    file, saved = tmp_path / "a.log", [{"position": 100, "inode": 1, "head": ""}]
    file.write_text("new\n")
    table = {"files": ["*.log"], "command": takes(tmp_path)}
    caplog.set_level(logging.INFO)
    asyncio.run(followed(file, saved, lambda: saved[-1]["position"] == 4, **table))
    assert (tmp_path / "taken").read_text() == "0 new\n"
    assert "was made anew" in caplog.text


def test_a_command_that_fails_fails_the_run_and_the_lines_stay(tmp_path: Path) -> None:
    file, saved = tmp_path / "a.log", list[Any]()
    file.write_text("one\n")
    for script, how in (("exit 3", "exit code 3"), ("kill -9 $$", "killed by SIGKILL")):
        table = {"files": ["*.log"], "command": ["sh", "-c", script]}
        with pytest.raises(CommandFailed, match=f"the command failed: {how}"):
            asyncio.run(followed(file, saved, lambda: False, **table))
    with pytest.raises(BadInput, match=r"jobs\.tail\.command: cannot run 'nowhere'"):
        asyncio.run(followed(file, saved, lambda: False, files=["*"], command=["nowhere"]))
    assert positions(saved) == [0]


def test_a_file_whose_first_batch_was_not_taken_is_given_before_the_one_that_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file, saved = tmp_path / "a.log", list[Any]()
    file.write_text("old 1\nold 2\n")
    fails = {"files": ["*.log"], "command": [sys.executable, "-c", "raise SystemExit(3)"]}
    for _ in range(2):
        with pytest.raises(CommandFailed):
            asyncio.run(followed(file, saved, lambda: False, **fails))
    rotated(file)
    with pytest.raises(CommandFailed):
        asyncio.run(followed(file, saved, lambda: False, **fails))
    end = file.stat().st_size
    table = {"files": ["*.log"], "command": takes(tmp_path)}
    asyncio.run(followed(file, saved, lambda: positions(saved)[-1] == end, **table))
    assert (tmp_path / "taken").read_text().splitlines() == [
        *("0 old 1", "0 old 2", "0 new 1", "0 new 2 is longer than all that was read")
    ]


def test_a_file_that_only_has_the_inode_of_the_one_that_was_found_is_another(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.log"
    file.write_text("old\n")
    found = next_lines(str(file), Place(), 10).behind
    assert next_lines(str(file), found, 10).lines == b"old\n"
    file.rename(tmp_path / "a.1")
    (tmp_path / "a.1").write_text("a file of another program\n")
    file.write_text("new\n")
    again = next_lines(str(file), found, 10)
    anew = again.behind
    assert (again.lines, anew.position, anew.inode) == (b"", 0, file.stat().st_ino)
    assert next_lines(str(file), anew, 10).lines == b"new\n"


def test_a_command_that_is_stopped_takes_with_it_what_it_has_started(tmp_path: Path) -> None:
    file, pid = tmp_path / "a.log", tmp_path / "pid"
    file.write_text("one\n")
    table = {"files": ["*.log"], "command": pipeline(pid)}

    async def story() -> None:
        task = asyncio.create_task(follow(Item(str(file), "tail", {}), context([], **table)))
        await asyncio.to_thread(eventually, lambda: whole_lines(pid), "the command has begun")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(story())
    began = int(whole_lines(pid)[0])
    eventually(lambda: is_gone(began), "it ends")


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_that_has_ended_leaves_nothing_that_it_has_started(
    tmp_path: Path, code: int
) -> None:
    file, pid, saved = tmp_path / "a.log", tmp_path / "pid", list[Any]()
    file.write_text("one\n")
    script = f"cat > /dev/null; sleep 300 & echo $! > {pid}; exit {code}"
    table = {"files": ["*.log"], "command": ["sh", "-c", script]}
    with pytest.raises(CommandFailed) if code else nullcontext():
        asyncio.run(followed(file, saved, lambda: positions(saved) == [0, 4], **table))
    began = int(whole_lines(pid)[0])
    eventually(lambda: is_gone(began), "it ends")


def test_a_command_that_is_stopped_while_it_is_started_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, pid = tmp_path / "a.log", tmp_path / "pid"
    file.write_text("one\n")
    real, may_go_on = asyncio.create_subprocess_exec, asyncio.Event()
    started = list[asyncio.subprocess.Process]()

    async def slow(*args: Any, **about: Any) -> asyncio.subprocess.Process:
        process = await real(*args, **about)
        started.append(process)
        await may_go_on.wait()
        return process

    async def story() -> None:
        table = {"files": ["*.log"], "command": pipeline(pid)}
        task = asyncio.create_task(follow(Item(str(file), "tail", {}), context([], **table)))
        await asyncio.to_thread(eventually, lambda: whole_lines(pid), "the command has begun")
        task.cancel()
        asyncio.get_running_loop().call_soon(may_go_on.set)
        await asyncio.gather(task, return_exceptions=True)
        assert [one.returncode for one in started] == [-signal.SIGKILL]  # and is not left open

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slow)
    asyncio.run(story())
    began = int(whole_lines(pid)[0])
    eventually(lambda: is_gone(began), "it ends")


def pipeline(pid: Path, *, first: str = "") -> list[str]:
    """A command that goes on for long, and says which process it has started."""
    return ["sh", "-c", f"{first}(sh -c 'echo $PPID > {pid}; exec sleep 300'; :) | cat"]


def test_a_command_ends_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    """It has been given a line: by then the guard knows of it."""
    pid = tmp_path / "pid"
    given = pipeline(pid, first="read line; ")
    (tmp_path / "a.log").write_text("one\n")
    (tmp_path / "blackboard.toml").write_text(
        f'[jobs.tail]\nfiles = ["*.log"]\ncommand = {json.dumps(given)}\n'
    )
    with site(tmp_path, "board.db") as found:
        args = ("worker", "--init", "--jobs", "tail", "--store", "board.db")
        worker = found.works(found.start(*args))
        eventually(lambda: whole_lines(pid), "the command has begun")
        began = int(whole_lines(pid)[0])
        found.below(worker)
        assert not is_gone(began)
        worker.send(signal.SIGKILL)
        worker.ended()
        eventually(lambda: is_gone(began), "it ends")


def test_the_command_is_given_no_secret_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(CONNECTION_STRING, "AccountKey=secret")
    file, saved = tmp_path / "a.log", list[Any]()
    file.write_text("one\n")
    shows = "import os; open('env', 'w').write(repr(dict(os.environ)))"
    table = {"files": ["*.log"], "command": [sys.executable, "-c", shows]}
    asyncio.run(followed(file, saved, lambda: bool(saved), **table))
    environ = (tmp_path / "env").read_text()
    assert "AccountKey" not in environ
    assert f"'BLACKBOARD_PARTITION': '{file}'" in environ
    assert f"'BLACKBOARD_INODE': '{file.stat().st_ino}'" in environ
    assert "'BLACKBOARD_FENCE': '7'" in environ


def lines(path: Path, position: int) -> bytes:
    place = next_lines(str(path), Place(), 10).behind
    if position:
        place = next_lines(str(path), place, 10).behind
    return next_lines(str(path), place, 10).lines


def test_a_file_that_is_gone_and_one_without_a_whole_line_are_waited_for(tmp_path: Path) -> None:
    assert lines(tmp_path / "gone", 0) == b""
    file = tmp_path / "a.log"
    file.write_bytes(b"x" * 25)
    assert lines(file, 0) == b""
    with file.open("ab") as log:
        log.write(b"\nnext\n")
    assert lines(file, 0) == b"x" * 25 + b"\n"
    assert lines(file, 26) == b"next\n"


class CountingFile(BytesIO):
    """Counts the bytes that are read of it."""

    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.count += len(found)
        return found


@pytest.mark.parametrize("batch", [1, 65_536, LONGEST_LINE])
def test_a_long_line_is_searched_once_and_read_once(batch: int) -> None:
    line = b"x" * 1_000_000 + b"\n"
    file = CountingFile(line + b"next\n")
    found, searched = lines_at(file, 0, batch)
    assert (found.startswith(line), searched) == (True, 0)
    assert file.count <= 2.2 * len(line)


@pytest.mark.parametrize("batch", [1, 65_536, LONGEST_LINE])
def test_what_was_searched_of_a_line_without_an_end_is_not_searched_again(batch: int) -> None:
    half = b"x" * 1_000_000
    assert lines_at(BytesIO(half), 0, batch) == (b"", len(half))
    file = CountingFile(half + b"y")
    assert lines_at(file, 0, batch, len(half)) == (b"", len(half) + 1)
    assert file.count == 1
    whole = half + b"y\n"
    assert lines_at(BytesIO(whole + b"z"), 0, batch, len(half) + 1) == (whole, 0)


def test_a_half_line_of_a_file_that_was_cut_short_is_searched_anew(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"one\n" + b"x" * 50)
    place = next_lines(str(file), next_lines(str(file), Place(), 8).behind, 8).behind
    found = next_lines(str(file), place, 8)
    assert (found.lines, found.searched) == (b"", 50)
    file.write_bytes(b"one\ntwo\n")
    assert next_lines(str(file), place, 8, found.searched).lines == b"two\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"", b"\nnext\n"), (b"one\n", b"\nnext\n"), (b"", b""), (b"1\n" * 4, b"")],
)
def test_a_line_that_is_too_long_is_refused_with_the_command_that_leaves_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bytes, after: bytes
) -> None:
    monkeypatch.setattr(tail, "LONGEST_LINE", 20)
    file = tmp_path / "it's a.log"
    file.write_bytes(before + b"x" * 100 + after)
    place = next_lines(str(file), Place(), 10).behind
    if before:
        place = next_lines(str(file), place, 10).behind
    with pytest.raises(CannotFollow) as refused:
        next_lines(str(file), place, 10)
    words = f"{file} has a line at byte {len(before)} that is longer than 20 bytes (`blackboard "
    assert str(refused.value).startswith(words)
    (command,) = re.findall("`(.*)`", str(refused.value))
    *_, verb, exact, option, checkpoint, item = shlex.split(command)
    assert (verb, exact, item, option) == ("edit", "--exact", str(file), "--checkpoint")
    with file.open("ab") as log:
        log.write(b"\nlast\n" if not after else b"")
    behind = Place(**json.loads(checkpoint))
    assert next_lines(str(file), behind, 6).lines == (b"next\n" if after else b"\nlast\n")


def test_a_line_as_long_as_may_be_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "LONGEST_LINE", 20)
    file = tmp_path / "a.log"
    file.write_bytes(b"x" * 19 + b"\n" + b"y" * 20 + b"\n")
    assert lines(file, 0) == b"x" * 19 + b"\n"
    with pytest.raises(CannotFollow, match="at byte 20 that is longer"):
        lines(file, 20)


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_directory(path: Path) -> None:
    path.mkdir()


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)


@pytest.mark.parametrize("make", [a_fifo, a_directory, a_socket])
def test_what_is_no_file_is_refused_at_once_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    file, saved = tmp_path / "a.log", list[Any]()
    make(file)
    kind = make.__name__.replace("_", " ").replace("fifo", "FIFO")
    table = {"files": ["*.log"], "command": takes(tmp_path)}
    with pytest.raises(CannotFollow) as refused:
        asyncio.run(followed(file, saved, lambda: False, **table))
    remedy = f"`blackboard --board BOARD.tail rm --exact {file}`"
    assert str(refused.value).startswith(f"{file} is {kind}, no file (move it away, or ")
    assert remedy in str(refused.value)


def test_a_fifo_that_got_the_inode_of_a_file_is_not_taken_for_it(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    os.mkfifo(tmp_path / "a.1")
    place = Place(position=4, inode=(tmp_path / "a.1").stat().st_ino, head="h")
    assert next_lines(str(file), place, 10) == Batch(behind=place)


def test_each_file_that_a_glob_finds_is_a_partition(tmp_path: Path) -> None:
    for name in ("b.log", "a.log", "c.txt"):
        (tmp_path / name).touch()
    (tmp_path / "d.log").mkdir()
    globs = [str(tmp_path / "*.log"), str(tmp_path / "a*")]
    assert files_of({"files": globs, "command": ["x"]}) == [
        str(tmp_path / "a.log"),
        str(tmp_path / "b.log"),
    ]


@pytest.mark.parametrize(
    ("table", "field"),
    [
        ({}, "files"),
        ({"files": "*.log"}, "files"),
        ({"files": ["*.log"]}, "command"),
        ({"files": ["*.log"], "command": [""]}, "command"),
        ({"files": ["*.log"], "command": ["x"], "batch": 0}, "batch"),
        ({"files": ["*.log"], "command": ["x"], "batch": True}, "batch"),
        ({"files": ["*.log"], "command": ["x"], "lines": 9}, "lines"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(table: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as refused:
        settings_of(table)
    assert refused.value.field == f"jobs.tail.{field}"


def test_it_is_found_by_its_name() -> None:
    found = load(["tail"], Path.cwd())["tail"]
    assert found.pump is not None
    assert found.is_async


def test_new_files_are_found_and_followed_by_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blackboard.toml").write_text(
        f'[jobs.tail]\nfiles = ["*.log"]\ncommand = {takes(tmp_path)!r}\n'
    )
    (tmp_path / "a.log").write_text("one\n")

    async def story() -> None:
        door = blackboard.open("x.db", handlers=["tail"], settings="blackboard.toml", create=True)
        async with door as board, board.worker():
            await asyncio.to_thread(eventually, (tmp_path / "taken").exists, "the line is taken")

    asyncio.run(story())
    assert (tmp_path / "taken").read_text() == "0 one\n"
