"""A board on SQLite in a process that was forked while the board was open."""

import subprocess
import sys
from pathlib import Path

from tests.support.patience import patience

PROGRAM = """
import os
import sys

import blackboard

path, opens = sys.argv[1:]
closed, opened = os.pipe(), os.pipe()
with blackboard.open_blocking(path, create=True) as board:
    board.add("parent", "feed", every="8h")
    if (child := os.fork()) == 0:
        code = 1
        try:
            if opens == "after":
                os.read(closed[0], 1)
            with blackboard.open_blocking(path) as own:
                os.write(opened[1], b".")
                if opens == "before":
                    os.read(closed[0], 1)
                own.add("child", "feed", every="8h")
            code = 0
        except blackboard.BlackboardError as problem:
            print(problem, flush=True)
        finally:
            os._exit(code)
    if opens == "before":
        os.read(opened[0], 1)
with blackboard.open_blocking(path) as board:  # as any command does
    board.add("other", "feed", every="8h")
os.write(closed[1], b".")
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
with blackboard.open_blocking(path) as board:
    print(code, *(item.id for item in board.items()))
"""


def said(path: Path, opens: str, *, program: str = PROGRAM) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), opens],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(60),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_forked_process_keeps_the_log_of_a_board_that_its_parent_closes(tmp_path: Path) -> None:
    """Without locks of its own its log would be removed by the next command that ends."""
    assert said(tmp_path / "app.db", "before") == ["0 child other parent"]
    assert [file.name for file in tmp_path.iterdir()] == ["app.db"]


def test_a_process_that_a_forked_process_forks_does_so_too(tmp_path: Path) -> None:
    again = "os.fork() and os._exit(os.waitstatus_to_exitcode(os.wait()[1]))"
    program = PROGRAM.replace("        code = 1\n", f"        {again}\n        code = 1\n")
    assert program != PROGRAM
    assert said(tmp_path / "app.db", "before", program=program) == ["0 child other parent"]


def test_a_fork_waits_until_no_request_is_under_way(tmp_path: Path) -> None:
    """The forked process would take its own file for locked, for ever."""
    program = """
import os
import select
import sys
import threading
from pathlib import Path

import blackboard
from blackboard.tables import sqlite_file
from blackboard.tables.sqlite_open import Opening

path = sys.argv[1]
begun, forks = threading.Event(), threading.Event()
with blackboard.open_blocking(path, create=True):
    pass
file = sqlite_file.SqliteFile.open(Path(path), Opening(), stamp=lambda: sqlite_file.UNKNOWN)
os.register_at_fork(before=forks.set)  # called before those that were registered earlier

def write():
    with file._request(), file._transaction():
        begun.set()
        forks.wait()
        select.select([], [], [], 0.2)

writing = threading.Thread(target=write)
writing.start()
begun.wait()
if (child := os.fork()) == 0:
    code = 1
    try:
        with blackboard.open_blocking(path) as own:
            own.add("child", "feed", every="8h")
        code = 0
    except blackboard.TableError as problem:
        print(problem, flush=True)
    finally:
        os._exit(code)
writing.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert said(tmp_path / "app.db", "", program=program) == ["0"]


def test_a_forked_process_does_not_open_a_board_whose_index_its_parent_has_removed(
    tmp_path: Path,
) -> None:
    told, others = said(tmp_path / "app.db", "after")
    assert "was open when this process was forked, and was closed everywhere since" in told
    assert others == "1 other parent"


REFUSED = """
import os
import sys

import blackboard

path = sys.argv[1]
closed, refused, ended = os.pipe(), os.pipe(), os.pipe()
with blackboard.open_blocking(path, create=True):
    if (child := os.fork()) == 0:
        os.read(closed[0], 1)
        left = []
        for _ in range(3):
            try:
                with blackboard.open_blocking(path):
                    pass
            except blackboard.BlackboardError:
                left.append(len(os.listdir("/proc/self/fd")))
        os.write(refused[1], b"." * len(set(left)))
        os.read(ended[0], 1)
        os._exit(0)
with blackboard.open_blocking(path):
    pass
os.write(closed[1], b".")
print(len(os.read(refused[0], 3)))
with blackboard.open_blocking(path) as board:
    board.add("other", "feed", every="8h")
    print(*(item.id for item in board.items()))
os.write(ended[1], b".")
os.waitpid(child, 0)
"""


def test_a_forked_process_that_is_refused_takes_the_board_from_no_other(tmp_path: Path) -> None:
    """And leaves no descriptor open each time that it tries."""
    assert said(tmp_path / "app.db", "", program=REFUSED) == ["1", "other"]


def test_a_file_whose_request_a_fork_did_not_wait_for_is_refused(tmp_path: Path) -> None:
    """Else it would count as locked there, for ever."""
    program = """
import os
import sys
import threading
from pathlib import Path

import blackboard
from blackboard.tables import sqlite_file, sqlite_forks
from blackboard.tables.sqlite_open import Opening

sqlite_forks.LONGEST_WAIT = 0.0
path = sys.argv[1]
begun, forked = threading.Event(), threading.Event()
with blackboard.open_blocking(path, create=True):
    pass
file = sqlite_file.SqliteFile.open(Path(path), Opening(), stamp=lambda: sqlite_file.UNKNOWN)

def write():
    with file._request(), file._transaction():
        begun.set()
        forked.wait()

writing = threading.Thread(target=write)
writing.start()
begun.wait()
if (child := os.fork()) == 0:
    try:
        with blackboard.open_blocking(path):
            pass
    except blackboard.BlackboardError as problem:
        print(problem, flush=True)
    os._exit(0)
os.waitpid(child, 0)
forked.set()
writing.join()
"""
    (told,) = said(tmp_path / "app.db", "", program=program)
    assert "this process was forked in the middle of a request to it" in told
