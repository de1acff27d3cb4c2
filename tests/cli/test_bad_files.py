"""Files that are damaged or not ours, and disks that are full or read-only: one line that says so
and what to do, exit code 2, and nothing changed.
"""

import json
import os
import random
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from blackboard import named_files
from tests.cli.command_line import CommandLine, blackboard
from tests.support.patience import patience

__all__ = ["blackboard"]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(name="town")
def _town(blackboard: CommandLine) -> CommandLine:
    blackboard("add", "davis", "--type", "hello", "--every", "8h")
    return blackboard


def test_two_boards_in_a_store_know_nothing_of_each_other(town: CommandLine) -> None:
    town("--board", "other", "init")
    before = town("export").out
    town("--board", "other", "add", "davis", "--type", "other")
    town("--board", "other", "pause", "davis")
    town("--board", "other", "rm", "davis")
    assert town("export").out == before
    assert town("--board", "other", "show").out.startswith("no items yet")
    assert town("doctor").out.startswith("clean: 1 item,")


def torn(good: bytes) -> bytes:
    return good[: len(good) * 2 // 3 // 4096 * 4096]


def flipped(good: bytes) -> bytes:
    """Bits turned over in every page but the first."""
    chance, raw = random.Random(1), bytearray(good)
    for start in range(4096, len(raw), 4096):
        for _ in range(8):
            raw[start + chance.randrange(64)] ^= 1 << chance.randrange(8)
    return bytes(raw)


def no_text(good: bytes) -> bytes:
    """Rows that are no UTF-8 any more."""
    return good.replace(b'"yyyy', b'"y\xffyy')


DAMAGE: Mapping[str, tuple[Callable[[bytes], bytes], str, str]] = {
    "random bytes": (lambda _: random.Random(1).randbytes(20_000), "is not a board", "restore"),
    "cut short": (torn, "is damaged", "restore a copy"),
    "cut in its first page": (lambda good: good[:2000], "is damaged", "restore a copy"),
    "bits turned over": (flipped, "is damaged", "restore a copy"),
    "empty": (lambda _: b"", "is empty, not a board", " init`)"),
}
READERS = [["show"], ["export"], ["check"], ["doctor"], ["rm", "*", "--yes"]]


@pytest.fixture(name="file")
def _file(town: CommandLine) -> Path:
    """A board of some pages, beside the one at work."""
    file = town.folder / "towns.db"
    ids = [f"town-{n:03}" for n in range(200)]
    town("--store", str(file), "add", *ids, "--type", "hello", "--set", f"text={'y' * 300}")
    return file


@pytest.mark.of_sqlite("damaged files")
@pytest.mark.parametrize("case", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_file_is_refused_and_left_as_it_is(
    town: CommandLine, file: Path, case: tuple[Callable[[bytes], bytes], str, str]
) -> None:
    damage, problem, remedy = case
    file.write_bytes(damage(file.read_bytes()))
    before = file.read_bytes()
    for args in READERS:
        told = town.refused("--store", str(file), *args)
        assert told.startswith(f"{file} {problem}"), args
        assert remedy in told
        assert len(told) < 400
        assert file.read_bytes() == before


@pytest.mark.of_sqlite("damaged files")
def test_rows_that_are_no_text_are_left_out_and_named(town: CommandLine, file: Path) -> None:
    file.write_bytes(no_text(file.read_bytes()))
    store = ("--store", str(file))
    doctor = f"`blackboard --store {file} doctor`"
    left_out = f"items left out, whose rows cannot be read: {doctor} names them"
    for args in (["show"], ["export"], ["check"]):
        said = town(*store, *args, code=int(args != ["show"]))
        assert left_out in said.err
    assert "damaged  item:town-" in said.out
    town(*store, "doctor", code=1)


@pytest.mark.of_sqlite("it is about no store")
@pytest.mark.parametrize(
    ("args", "told"),
    [
        ("apply /dev/zero", "file: /dev/zero has more than 10,000 bytes (divide it)"),
        ("apply -", "stdin: the standard input has more than 10,000 bytes (divide it)"),
        ("--config /dev/zero show", "config: /dev/zero has more than 10,000 bytes (divide it)"),
        ("import-crontab /dev/zero", "file: /dev/zero has more than 10,000 bytes (divide it)"),
        ("import-crontab -", "file: the standard input has more than 10,000 bytes (divide it)"),
        ("edit davis --set x=@/dev/zero", "params: they are 6,291,464 bytes of JSON"),
        ("run davis --set x=@/dev/zero", "params: they are 6,291,464 bytes of JSON"),
        ("edit davis --checkpoint @/dev/zero", "checkpoint: it is 6,291,458 characters of JSON"),
    ],
)
def test_a_file_without_an_end_is_read_in_part(
    town: CommandLine, monkeypatch: pytest.MonkeyPatch, args: str, told: str
) -> None:
    monkeypatch.setattr(named_files, "LARGEST_FILE", 10_000)
    with open("/dev/zero", encoding="utf-8") as zeros:  # noqa: PTH123 - as the standard input is
        monkeypatch.setattr("sys.stdin", zeros)
        assert told in town.refused(*args.split())


@pytest.mark.of_sqlite("it is about no store")
@pytest.mark.parametrize(
    ("args", "field"),
    [
        ("apply {}", "file"),
        ("--config {} show", "config"),
        ("import-crontab {}", "file"),
        ("edit davis --set x=@{}", "x"),
        ("edit davis --checkpoint @{}", "checkpoint"),
    ],
)
def test_what_is_no_file_is_refused_and_not_waited_for(
    town: CommandLine, args: str, field: str
) -> None:
    os.mkfifo(town.folder / "pipe")
    (town.folder / "link").symlink_to("pipe")
    (town.folder / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")  # a path may be too long
    kinds = {"pipe": "it is a named pipe", "link": "it is a named pipe"}
    for name, words in (kinds | {"socket": "it is a socket", "folder": "Is a directory"}).items():
        told = town.refused(*args.format(name).split())
        assert told.startswith(f"{field}: ")
        assert words in told
    before = len([*Path("/dev/fd").iterdir()])
    town.refused(*args.format("folder").split())
    assert len([*Path("/dev/fd").iterdir()]) == before


@pytest.mark.of_sqlite("it is about no store")
def test_a_settings_file_that_is_no_file_is_refused_and_not_waited_for(town: CommandLine) -> None:
    os.mkfifo(town.folder / "blackboard.toml")
    assert town.refused("show").startswith("config: blackboard.toml: it is a named pipe (")


@pytest.mark.of_sqlite("it is about no store")
@pytest.mark.parametrize(
    ("args", "answer"),
    [
        ("apply <(cat towns.toml)", "+ keene (hello)"),
        ("apply /dev/stdin < towns.toml", "+ keene (hello)"),
        ("apply /dev/stdin < <(cat towns.toml)", "+ keene (hello)"),
        ("apply link < <(sleep 0.1; cat towns.toml)", "+ keene (hello)"),
        ("apply - < towns.toml", "+ keene (hello)"),
        ("--config <(echo '[board]') apply <(cat towns.toml)", "+ keene (hello)"),
        ("import-crontab <(echo '@daily true')", 'command = "true"'),
        ("edit davis --set x=@<(cat towns.toml)", 'id = "keene"'),
    ],
)
def test_what_a_shell_gives_as_a_file_is_read(town: CommandLine, args: str, answer: str) -> None:
    town.write('[[items]]\nid = "keene"\ntype = "hello"\nevery = "8h"\n', "towns.toml")
    (town.folder / "link").symlink_to("/dev/stdin")
    done = in_bash(town, args)
    assert (done.returncode, answer in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.of_sqlite("it is about no store")
@pytest.mark.parametrize(
    ("file", "given", "option"),
    [
        ("<(echo '[board]')", "", "--reload"),
        ("/dev/stdin", "< b.toml", "--processes 2"),
        ("/dev/stdin", "< <(echo '[board]')", "--processes 2"),
        ("/dev/fd/3", "3< b.toml", "--processes 2"),
        ("/proc/self/fd/3", "3< b.toml", "--processes 2"),
        ("/dev/../dev/./fd/3", "3< b.toml", "--processes 2"),
        ("link-to-link", "< b.toml", "--reload"),
        ("folder/3", "3< b.toml", "--processes 2"),
        ("/dev/null", "", "--processes 2"),
    ],
)
def test_settings_that_can_be_read_once_are_refused_where_each_process_reads_them(
    town: CommandLine, file: str, given: str, option: str
) -> None:
    """Also those that are a regular file here, and the pipe of the supervisor in a child."""
    town.write("[board]\n", "b.toml")
    for name, target in {"link": "/dev/stdin", "link-to-link": "link", "folder": "/dev/fd"}.items():
        (town.folder / name).symlink_to(target)
    done = in_bash(town, f"--config {file} worker --jobs shell {option} {given}")
    assert done.returncode == 2
    assert f"config: each process reads {'/dev/fd/' if '<' in file else file}" in done.stderr
    assert "name a file" in done.stderr


@pytest.mark.of_sqlite("it is about no store")
def test_settings_that_each_process_can_read_are_taken(town: CommandLine) -> None:
    town.write("[board]\n", "b.toml")
    (town.folder / "link").symlink_to("b.toml")
    (town.folder / "folder").symlink_to(town.folder)
    files = ("b.toml", "link", "folder/b.toml", "/proc/self/cwd/b.toml")
    assert [file for file in files if not named_files.can_be_read_again(Path(file))] == []
    done = in_bash(town, f"--config {files[-1]} worker --jobs shell --processes 2 --until-idle")
    assert (done.returncode, "each process reads" in done.stderr) == (0, False), done.stderr


@pytest.mark.of_sqlite("it is about no store")
@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no memory file system here")
def test_a_named_pipe_in_memory_is_none_of_a_shell(town: CommandLine) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        os.mkfifo(Path(folder) / "pipe")
        assert "it is a named pipe" in town.refused("apply", f"{folder}/pipe")


def in_bash(town: CommandLine, args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"{sys.executable} -m blackboard --store {town.store} {args}"],
        cwd=town.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(60),
    )


@pytest.mark.of_sqlite("damaged files")
@pytest.mark.parametrize("mode", ["--once", "--until-idle"])
def test_a_worker_with_an_end_ends_where_the_board_is_damaged(
    town: CommandLine, file: Path, mode: str
) -> None:
    """It would try for ever, and whoever starts one every minute would have very many."""
    file.write_bytes(flipped(file.read_bytes()))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "blackboard",
            "--store",
            str(file),
            "worker",
            "--jobs",
            "shell",
            mode,
        ],
        cwd=town.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(60),
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"blackboard: {file} is damaged: ")
    assert "Traceback" not in done.stderr


@pytest.mark.of_sqlite("files of other programs")
@pytest.mark.parametrize("command", [["show"], ["init"], ["add", "x", "--type", "hello"]])
def test_what_is_no_file_of_this_version_is_left_alone(
    town: CommandLine, file: Path, command: Sequence[str]
) -> None:
    newer, other, folder = file, town.folder / "other.db", town.folder / "folder.db"
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("PRAGMA user_version = 7")
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE notes (text)")
    folder.mkdir()
    before = newer.read_bytes(), other.read_bytes()
    for place, problem, remedy in (
        (newer, "was written by a newer version", "update blackboard-scheduler"),
        (other, "is the file of another program", "name another file"),
        (folder, "is a folder", "name a file for the board"),
    ):
        told = town.refused("--store", str(place), *command)
        assert told.startswith(f"{place} {problem}")
        assert remedy in told
    assert (newer.read_bytes(), other.read_bytes()) == before
    assert list(folder.iterdir()) == []


# ---- disks

STORY = """
blackboard() {
    "$python" -m blackboard "$@"
}
try() {
    code=0
    blackboard "$@" >"$told/out" 2>"$told/err" || code=$?
    echo "$code|$(wc -c <"$told/out")|$(tr '\\n' ' ' <"$told/err")"
}
"""

READ_ONLY = """
mount -t tmpfs -o size=1m tmpfs disk
blackboard --store disk/b.db add a b --type shell --every 1h
mount -o remount,bind,ro disk
try --store disk/b.db show
try --store disk/b.db add c --type shell
try --store disk/b.db rm a
try --store disk/new.db init
try --store disk/b.db worker --jobs shell --once
mount -o remount,bind,rw disk
blackboard --store disk/b.db export --json
"""

FULL = """
mount -t tmpfs -o size=1m tmpfs disk
blackboard --store disk/b.db add a b --type shell --every 1h --set "text=$(cat text)"
free=$(df -Pk disk | awk 'NR == 2 { print $4 }')
head -c $(((free - 48) * 1024)) /dev/zero >disk/fill
try --store disk/b.db edit a b --set "text=more $(cat text)"
try --store disk/new.db init
cat /dev/zero >disk/fill 2>/dev/null || true
try --store disk/b.db show
try --store disk/b.db add c --type shell
try --store disk/b.db run a
try --store disk/b.db worker --jobs shell --once
rm disk/fill
blackboard --store disk/b.db doctor >&2
blackboard --store disk/b.db export --json
"""


def on_a_disk(story: str, folder: Path) -> tuple[list[tuple[int, str]], Any]:
    """Play a story on a disk of its own, in a mount namespace that nobody else sees. The exit code
    and message of each `try`, all of which printed nothing else; and the items there are at the
    end.
    """
    (folder / "disk").mkdir()
    (folder / "text").write_text("x" * 30_000)
    unshare = ["unshare", "--mount", "--map-root-user"]
    try:
        mount = [*unshare, "mount", "-t", "tmpfs", "tmpfs", str(folder / "disk")]
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("nothing can be mounted here")
    environ = {"python": sys.executable, "PYTHONPATH": str(ROOT), "told": str(folder)}
    done = subprocess.run(
        [*unshare, "sh", "-eu", "-c", STORY + story],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(120),
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    lines, start, items = done.stdout.partition("[\n")
    found = [line.split("|") for line in lines.splitlines() if "|" in line]
    assert {printed for _, printed, _ in found} == {"0"}
    return [(int(code), message) for code, _, message in found], json.loads(start + items)


def test_a_read_only_disk_is_told_and_left_alone(tmp_path: Path) -> None:
    told, items = on_a_disk(READ_ONLY, tmp_path)
    assert [code for code, _ in told] == [2] * 5
    assert all(message.count("check owner, permissions and mount") == 1 for _, message in told)
    assert [one["id"] for one in items] == ["a", "b"]


def test_a_full_disk_is_told_and_the_board_is_good_afterwards(tmp_path: Path) -> None:
    told, items = on_a_disk(FULL, tmp_path)
    assert [code for code, _ in told] == [2] * 6
    assert [m for _, m in told if not (m.startswith("blackboard: ") and "full" in m)] == []
    assert [(one["id"], len(one["params"]["text"])) for one in items] == [
        ("a", 30_000),
        ("b", 30_000),
    ]


NOBODY = 65534


def test_a_folder_without_permission_is_told_and_left_alone() -> None:
    """Permissions do not bind root, so it becomes somebody else."""
    somebody: Any = {"user": NOBODY, "extra_groups": []}
    somebody = {} if os.geteuid() else somebody

    def blackboard(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "blackboard", *args],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            **somebody,
        )

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "town")
        folder.mkdir()
        for place in (folder.parent, folder):
            os.chown(place, somebody.get("user", -1), -1)
        try:
            blackboard("--version").check_returncode()
        except (PermissionError, subprocess.CalledProcessError):
            pytest.skip("root alone can run this Python")
        blackboard("add", "davis", "--type", "shell").check_returncode()
        before = blackboard("export").stdout
        folder.chmod(0o555)
        for args in (["show"], ["add", "x", "--type", "shell"], ["--store", "new.db", "init"]):
            done = blackboard(*args)
            assert (done.returncode, done.stdout) == (2, "")
            assert "check owner, permissions and mount" in done.stderr
            assert done.stderr.count("\n") == 1
        folder.chmod(0o755)
        assert blackboard("export").stdout == before
