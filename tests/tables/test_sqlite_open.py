"""Which files are opened and made, and what is said about those that are not."""

import asyncio
import os
import re
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from blackboard.errors import MissingStore, StoreProblem
from blackboard.table import Busy, Insert
from blackboard.tables.sqlite import SqliteTable
from blackboard.tables.sqlite_ages import boot_id
from blackboard.tables.sqlite_filesystem import (
    Mount,
    from_mount_command,
    from_mountinfo,
    mount_table,
    shared_kind,
)
from blackboard.tables.sqlite_open import Opening, open_file
from tests.support.clocks import ManualClock
from tests.support.sqlite_files import powerless
from tests.support.stores import rows_of


def open_and_close(path: Path, opening: Opening | None = None) -> None:
    async def story() -> None:
        table = await SqliteTable.open(path, ManualClock(), opening)
        await table.close()

    asyncio.run(story())


def refusal(
    path: Path, opening: Opening | None = None, *, kind: type[StoreProblem] = StoreProblem
) -> str:
    """What is said, by an error of just that kind; whoever is refused leaves no thread behind."""
    with pytest.raises(StoreProblem) as caught:
        open_and_close(path, opening)
    assert caught.type is kind
    assert not sqlite_threads()
    assert caught.value.exit_code == 2
    assert str(path) in str(caught.value) or str(path.parent) in str(caught.value)
    return str(caught.value)


def sqlite_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "sqlite"]


def board(path: Path, *statements: str) -> None:
    """A board that somebody has been at."""
    open_and_close(path, Opening(create=True))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def grown(path: Path) -> None:
    async def story() -> None:
        table = await SqliteTable.open(path, ManualClock(), Opening(create=True))
        await table.commit("p", [Insert(f"k{n}", {"text": "x" * 900}) for n in range(900)])
        await table.close()

    asyncio.run(story())


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE songs (name TEXT)")


def cut_short(path: Path) -> None:
    grown(path)
    os.truncate(path, path.stat().st_size // 2)


def scrambled(path: Path) -> None:
    grown(path)
    path.write_bytes(path.read_bytes()[:100] + os.urandom(path.stat().st_size - 100))


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a folder": (Path.mkdir, "is a folder"),
    "empty": (Path.touch, "empty.*blackboard init"),
    "text": (lambda path: path.write_text("id,start\n" * 99), "not a board: .*name another file"),
    "of another program": (foreign, "another program"),
    "of a newer version": (
        lambda path: board(path, "PRAGMA user_version = 2"),
        "newer version: its schema is 2, this version reads 1.*update",
    ),
    "cut short": (cut_short, "damaged: .*restore a copy"),
    "scrambled": (scrambled, "damaged: .*restore a copy"),
    "without its revision": (lambda path: board(path, "DELETE FROM revision"), "lost its revision"),
    "without its tables": (lambda path: board(path, "DROP TABLE revision"), "no such table"),
}


@pytest.mark.case("CR04", on="sqlite")
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("create", [False, True])
def test_a_file_that_is_no_board_is_refused_and_left_as_it_is(
    tmp_path: Path, name: str, *, create: bool
) -> None:
    make, words = REFUSED[name]
    path = tmp_path / "blackboard.db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    said = refusal(path, Opening(create=create))
    assert re.search(words, said), said
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_missing_file_is_made_only_when_that_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "blackboard.db"
    assert re.search("no board at .*`blackboard init`", refusal(path, kind=MissingStore))
    assert list(tmp_path.iterdir()) == []
    open_and_close(path, Opening(create=True))
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "blackboard.db"
        for key in ("a", "b"):
            table = await SqliteTable.open(path, ManualClock(), Opening(create=True))
            await table.commit("p", [Insert(key, {"n": 1})])
            keys = [row.key for row in await rows_of(table, "p")]
            await table.close()
        assert keys == ["a", "b"]

    asyncio.run(story())


def test_a_copy_that_sqlite_made_is_a_board(tmp_path: Path) -> None:
    async def story() -> list[str]:
        path, copy = tmp_path / "blackboard.db", tmp_path / "copy.db"
        table = await SqliteTable.open(path, ManualClock(), Opening(create=True))
        await table.commit("p", [Insert("a", {"n": 1})])
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("VACUUM INTO ?", [str(copy)])
        await table.close()
        copied = await SqliteTable.open(copy, ManualClock())
        await copied.commit("p", [Insert("b", {"n": 2})])
        found = [row.key for row in await rows_of(copied, "p")]
        await copied.close()
        return found

    assert asyncio.run(story()) == ["a", "b"]


def test_a_copy_that_was_made_from_a_dump_is_refused_with_what_makes_it_a_board(
    tmp_path: Path,
) -> None:
    async def story() -> list[str]:
        path, copy = tmp_path / "blackboard.db", tmp_path / "copy.db"
        table = await SqliteTable.open(path, ManualClock(), Opening(create=True))
        await table.commit("p", [Insert("a", {"n": 1})])
        await table.close()
        with closing(sqlite3.connect(path)) as file, closing(sqlite3.connect(copy)) as copied:
            copied.executescript("".join(file.iterdump()))
        with pytest.raises(StoreProblem) as refused:
            await SqliteTable.open(copy, ManualClock())
        (remedy,) = re.findall(r"`sqlite3 FILE \"(.+)\"`", str(refused.value))
        with closing(sqlite3.connect(copy)) as copied:
            copied.executescript(remedy)
        table = await SqliteTable.open(copy, ManualClock())
        found = [row.key for row in await rows_of(table, "p")]
        await table.close()
        return found

    assert asyncio.run(story()) == ["a"]


@pytest.mark.parametrize("name", ["a b?c#d%20.db", "Łódź 🏙.db", ":memory:", "file:x.db"])
def test_any_name_is_a_path(tmp_path: Path, name: str) -> None:
    open_and_close(tmp_path / name, Opening(create=True))
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "real" / "b.db")
    open_and_close(link, Opening(create=True))
    assert (tmp_path / "real" / "b.db").is_file()
    assert link.is_symlink()


@pytest.mark.parametrize("create", [False, True])
def test_a_missing_folder_is_named(tmp_path: Path, *, create: bool) -> None:
    path = tmp_path / "none" / "blackboard.db"
    assert "no folder" in refusal(path, Opening(create=create))


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "none").touch()
    path = tmp_path / "none" / "blackboard.db"
    assert "cannot be reached" in refusal(path, Opening(create=True))


def test_a_board_held_by_another_program_is_busy_and_not_at_fault(tmp_path: Path) -> None:
    path = tmp_path / "blackboard.db"
    open_and_close(path, Opening(create=True))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Busy):
            open_and_close(path, Opening(wait=0.05))
    assert not sqlite_threads()
    open_and_close(path)


# --- permissions


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name).resolve()
        Path(name).chmod(0o755)


def test_a_board_is_not_made_in_a_read_only_folder(folder: Path) -> None:
    folder.chmod(0o555)
    with powerless():
        said = refusal(folder / "blackboard.db", Opening(create=True))
    assert "no board can be made" in said
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("file", "around"), [(0o444, 0o777), (0o666, 0o555), (0o000, 0o777)])
def test_a_board_that_cannot_be_written_is_refused(folder: Path, file: int, around: int) -> None:
    path = folder / "blackboard.db"
    open_and_close(path, Opening(create=True))
    path.chmod(file)
    folder.chmod(around)
    with powerless():
        assert "cannot be written" in refusal(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="files of another group can be made by root alone")
@pytest.mark.parametrize("end", ["-wal", "-shm"])
def test_a_board_is_refused_whose_side_files_belong_to_another_group(
    folder: Path, end: str
) -> None:
    """As those that a user makes in a folder whose group they do not take over. Each is named."""
    path = folder / "blackboard.db"
    open_and_close(path, Opening(create=True))
    path.chmod(0o666)
    folder.chmod(0o777)
    with closing(open_file(path, Opening())) as connection:
        connection.execute("SELECT * FROM rows").fetchone()
        Path(f"{path}{end}").chmod(0o600)
        with powerless():
            said = refusal(path)
    assert f"blackboard.db{end} cannot be written" in said
    assert "g+rwxs" in said


def test_a_side_file_that_is_made_while_the_board_is_opened_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "blackboard.db"
    open_and_close(path, Opening(create=True))
    access = os.access

    def made_after(name: Path, mode: int, **how: bool) -> bool:
        may = access(name, mode, **how)
        name.touch()
        return may

    monkeypatch.setattr(os, "access", made_after)
    open_file(path, Opening()).close()


# --- disks


def test_a_full_disk_is_named_and_nothing_is_left_on_it(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can be mounted by root alone")
    try:
        said = refusal(disk / "blackboard.db", Opening(create=True))
        assert re.search(r"\(.*full.*\)", said)
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
31 27 0:40 / /home rw,relatime shared:5 master:2 - nfs4 nas:/home rw,vers=4.2
32 31 254:1 / /home/ann/local rw - xfs /dev/vdb rw
33 27 0:41 / /mnt/our\\040share rw - cifs //nas/share rw
34 27 0:42 / /mnt/c rw - 9p drvfs rw
35 27 0:43 / /mnt/ssh rw - fuse.sshfs ann@host:/ rw
36 27 0:44 / /mnt/fuse rw - fuse.mergerfs pool rw
37 27 0:45 / /mnt/over rw - nfs nas:/over rw
38 37 254:2 / /mnt/over rw - ext4 /dev/vdc rw
"""
PLACES = {
    "/var/lib/b.db": "",
    "/b.db": "",
    "/home/ann/b.db": "nfs4",
    "/homes/ann/b.db": "",
    "/home/ann/local/b.db": "",
    "/home/ann/locals/b.db": "nfs4",
    "/mnt/our share/b.db": "cifs",
    "/mnt/c/Users/ann/b.db": "9p",
    "/mnt/ssh/b.db": "fuse.sshfs",
    "/mnt/fuse/b.db": "fuse.mergerfs",
    "/mnt/over/b.db": "",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_network_file_system_is_known_by_its_deepest_mount(place: str) -> None:
    assert shared_kind(Path(place), from_mountinfo(MOUNTS)) == PLACES[place]


def test_the_mounts_of_a_mac_are_read_too() -> None:
    mounts = from_mount_command(
        "/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)\n"
        "devfs on /dev (devfs, local, nobrowse)\n"
        "//ann@nas/our%20share on /Volumes/our share (smbfs, nodev, nosuid, mounted by ann)\n"
    )
    assert mounts == [
        Mount("/", "apfs"),
        Mount("/dev", "devfs"),
        Mount("/Volumes/our share", "smbfs"),
    ]
    assert shared_kind(Path("/Volumes/our share/b.db"), mounts) == "smbfs"


def test_this_host_has_mounts() -> None:
    assert "/" in [mount.point for mount in mount_table()]


def no_text(*arguments: object, **named: object) -> str:
    raise PermissionError("hidden")


def test_a_host_that_shows_no_mounts_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", no_text)
    monkeypatch.setattr(subprocess, "run", no_text)
    assert mount_table() == []


def test_a_host_that_hides_its_boot_cannot_have_a_board(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a lock of a time before the boot could look younger than it is."""
    monkeypatch.setattr(Path, "read_text", no_text)
    monkeypatch.setattr(subprocess, "run", no_text)
    with pytest.raises(StoreProblem, match="hidden"):
        boot_id.__wrapped__()


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("create", [False, True])
def test_a_board_on_a_network_file_system_is_refused(
    tmp_path: Path, *, create: bool, there: bool
) -> None:
    path = tmp_path / "blackboard.db"
    if there:
        open_and_close(path, Opening(create=True))
    mounts = [Mount("/", "ext4"), Mount(str(tmp_path.resolve()), "nfs4")]
    said = refusal(path, Opening(create=create, mounts=mounts))
    assert "shared file system (nfs4)" in said
    assert path.exists() is there


def test_a_boot_has_one_name() -> None:
    assert boot_id() == boot_id() != ""
