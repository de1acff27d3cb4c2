"""One board, one name: a file that has another name, or could have one, is refused."""

import asyncio
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from blackboard.errors import StoreProblem
from blackboard.table import Conflict, Insert, Merge, Unusable
from blackboard.tables.sqlite import SqliteTable
from blackboard.tables.sqlite_filesystem import SHARED, Mount, from_mountinfo, mount_at, shared_kind
from blackboard.tables.sqlite_open import Opening
from tests.support.clocks import ManualClock
from tests.support.patience import patience
from tests.support.sqlite_files import CHILD, P
from tests.support.stores import Run, rows_of


@pytest.fixture
def path(tmp_path: Path, run: Run) -> Path:
    """A board that is closed."""
    made = tmp_path / "blackboard.db"
    run(opened(made))
    return made


async def opened(path: Path, opening: Opening | None = None) -> None:
    table = await SqliteTable.open(path, ManualClock(), opening or Opening(create=True))
    await table.close()


def refusal(run: Run, path: Path, opening: Opening | None = None) -> str:
    with pytest.raises(StoreProblem) as caught:
        run(opened(path, opening))
    assert caught.value.exit_code == 2
    return str(caught.value)


@contextmanager
def mounted(file: Path, point: Path) -> Iterator[None]:
    """`file` at `point` too, as a container has it."""
    command = ["mount", "--bind", str(file), str(point)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("files can be mounted by root alone")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(point)], check=True)


# --- hard links


def test_a_file_with_another_link_is_refused_under_both_names(path: Path, run: Run) -> None:
    other = path.with_name("other.db")
    other.hardlink_to(path)
    for name in (path, other):
        said = refusal(run, name)
        assert re.search(r"2 names \(hard links\).*symbolic link", said), said
        assert str(name) in said
    other.unlink()
    run(opened(path))


def test_a_link_that_is_made_while_workers_run_stops_them_until_it_is_gone(
    path: Path, run: Run
) -> None:
    table = run(SqliteTable.open(path, ManualClock()))
    run(table.commit(P, [Insert("a", {"n": 1})]))
    other = path.with_name("other.db")
    other.hardlink_to(path)
    with pytest.raises(Unusable, match="2 names"):
        run(table.commit(P, [Insert("b", {"n": 1})]))
    with pytest.raises(Unusable, match="2 names"):
        run(rows_of(table, P))
    other.unlink()
    run(table.commit(P, [Insert("c", {"n": 1})]))
    assert [row.key for row in run(rows_of(table, P))] == ["a", "c"]
    run(table.close())


def test_what_a_maker_that_was_killed_left_is_no_other_name(path: Path, run: Run) -> None:
    """It fills a file under another name, links it into place, and removes the first name."""
    left = path.with_name(".blackboard-left")
    left.hardlink_to(path)
    run(opened(path))
    assert list(path.parent.iterdir()) == [path]


def test_what_another_maker_removes_meanwhile_does_not_hide_what_was_left(
    path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, gone = path.with_name(".blackboard-left"), path.with_name(".blackboard-gone")
    left.hardlink_to(path)
    glob = Path.glob
    monkeypatch.setattr(Path, "glob", lambda folder, name: [gone, *glob(folder, name)])
    run(opened(path))
    assert list(path.parent.iterdir()) == [path]


def test_symbolic_links_lead_to_one_name(path: Path, run: Run) -> None:
    async def story() -> list[str]:
        link = path.with_name("link.db")
        link.symlink_to(path.name)
        far = path.parent / "far"
        far.symlink_to(path.parent)
        tables = [
            await SqliteTable.open(name, ManualClock()) for name in (path, link, far / link.name)
        ]
        for number, table in enumerate(tables):
            await table.commit(P, [Insert(f"k{number}", {"n": 1})])
        found = [[row.key for row in await rows_of(table, P)] for table in tables]
        for table in tables:
            await table.close()
        assert found[0] == found[1] == found[2]
        return found[0]

    assert run(story()) == ["k0", "k1", "k2"]


def test_no_etag_comes_again_after_an_older_copy_was_restored_into_the_open_file(
    path: Path, run: Run
) -> None:
    """SQLite's own backup keeps the file in its place, and others may use as many etags since."""
    copy = path.with_name("copy.db")
    table = run(SqliteTable.open(path, ManualClock()))
    run(table.commit(P, [Insert("a", {"n": 1})]))
    with closing(sqlite3.connect(path)) as file, closing(sqlite3.connect(copy)) as backup:
        file.backup(backup)
        (etag,) = run(table.commit(P, [Insert("lock", {"nonce": "mine"})]))
        backup.backup(file)
    other = run(SqliteTable.open(path, ManualClock()))
    (etag_since,) = run(other.commit(P, [Insert("lock", {"nonce": "theirs"})]))
    assert etag_since != etag
    with pytest.raises(Conflict):
        run(table.commit(P, [Merge("lock", {"sent": 1.0}, etag)]))
    run(table.commit(P, [Merge("lock", {"sent": 1.0}, etag_since)]))
    for one in (table, other):
        run(one.close())


# --- what is beside it


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
def test_a_file_beside_it_that_is_a_link_is_refused(path: Path, run: Run, end: str) -> None:
    beside, elsewhere = Path(f"{path}{end}"), path.with_name("elsewhere")
    elsewhere.touch()
    beside.symlink_to(elsewhere)
    assert "not a plain file" in refusal(run, path)
    beside.unlink()
    beside.hardlink_to(elsewhere)
    assert re.search(rf"{beside} has 2 names", refusal(run, path))


@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_removed_under_its_workers_stops_them(
    path: Path, run: Run, end: str, *, replaced: bool
) -> None:
    """Whoever opens the board next would begin another log."""
    table = run(SqliteTable.open(path, ManualClock()))
    run(table.commit(P, [Insert("a", {"n": 1})]))
    file = Path(f"{path}{end}")
    kept = file.with_name("kept")
    file.rename(kept)
    if replaced:
        shutil.copy(kept, file)
    with pytest.raises(Unusable, match=f"{file.name} was removed or replaced"):
        run(table.commit(P, [Insert("b", {"n": 1})]))
    run(table.close())


def test_what_was_acknowledged_before_the_log_was_removed_is_in_the_file_once_it_is_closed(
    path: Path, run: Run
) -> None:
    table = run(SqliteTable.open(path, ManualClock()))
    run(table.commit(P, [Insert("a", {"n": 1})]))
    Path(f"{path}-wal").unlink()
    with closing(sqlite3.connect(path)) as other, suppress(sqlite3.OperationalError):
        other.execute("SELECT * FROM rows").fetchall()  # it makes an empty log
    run(table.close())
    assert keys_in(path) == ["a"]


@contextmanager
def user_of(path: Path, end: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has written the row "kept", and keeps the file open; at its end it closes it,
    or leaves it open (`end`).
    """
    command = [sys.executable, str(CHILD), end, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        process.communicate(timeout=patience(60))
    assert process.returncode == 0


def keys_in(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as file:
        return [key for (key,) in file.execute("SELECT key FROM rows ORDER BY key")]


@pytest.mark.parametrize("end", ["close", "leave"])
def test_a_process_whose_index_was_removed_ends_without_copying_or_removing_the_log(
    path: Path, end: str
) -> None:
    """SQLite would copy by the old index, and remove what other processes wrote since."""
    with user_of(path, end):
        Path(f"{path}-shm").unlink()
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("INSERT INTO rows SELECT part, 'new', etag, '', 0, '{}' FROM rows")
    assert keys_in(path) == ["kept", "new"]


def test_a_file_is_not_opened_while_a_process_uses_its_removed_index(path: Path, run: Run) -> None:
    if not Path("/proc/locks").exists():
        pytest.skip("the locks of this system are not shown")
    with user_of(path, "close") as process:
        run(opened(path))
        Path(f"{path}-shm").unlink()
        for _ in range(2):
            assert f"process {process.pid} " in refusal(run, path)
    run(opened(path))
    assert keys_in(path) == ["kept"]


def test_a_file_is_not_opened_in_a_process_that_uses_its_removed_index(
    path: Path, run: Run
) -> None:
    if not Path("/proc/locks").exists():
        pytest.skip("the locks of this system are not shown")
    table = run(SqliteTable.open(path, ManualClock()))
    Path(f"{path}-shm").unlink()
    assert f"process {os.getpid()} " in refusal(run, path)
    run(table.close())


def test_a_process_that_had_an_earlier_file_open_opens_the_one_in_its_place(
    path: Path, run: Run
) -> None:
    """As where a copy is put back: the earlier file stays open until its process ends."""
    table = run(SqliteTable.open(path, ManualClock()))
    for end in ("", "-wal", "-shm"):
        Path(f"{path}{end}").unlink()
    run(opened(path))
    run(table.close())
    run(opened(path))


shown_locks = pytest.mark.skipif(
    not Path("/proc/locks").exists(), reason="the locks of this system are not shown"
)


def copied(path: Path) -> Path:
    """A copy of the board, as `VACUUM INTO` makes it."""
    copy = path.with_name("copy.db")
    with closing(sqlite3.connect(path)) as file:
        file.execute("VACUUM INTO ?", [str(copy)])
    return copy


@shown_locks
def test_a_copy_in_the_place_of_a_file_that_a_process_uses_is_not_opened(
    path: Path, run: Run
) -> None:
    """SQLite would write the log of the earlier file over the copy."""
    copy = copied(path)
    with user_of(path, "close") as process:
        copy.replace(path)
        said = refusal(run, path)
        assert f"process {process.pid} uses the log of" in said
        assert "remove" in said
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink()
    run(opened(path))
    assert keys_in(path) == []


@shown_locks
def test_a_copy_beside_the_log_of_a_process_that_was_killed_is_not_opened(
    path: Path, run: Run
) -> None:
    copy = copied(path)
    with pytest.raises(AssertionError), user_of(path, "leave") as process:
        process.kill()
    copy.replace(path)
    before = path.read_bytes()
    assert re.search("-wal is left of another file.*remove", refusal(run, path))
    descriptors = len([*Path("/proc/self/fd").iterdir()])
    refusal(run, path)
    assert len([*Path("/proc/self/fd").iterdir()]) == descriptors
    assert path.read_bytes() == before
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink()
    run(opened(path))


def test_a_copy_that_was_opened_before_is_opened_beside_its_own_log(path: Path, run: Run) -> None:
    copy = copied(path)
    with pytest.raises(AssertionError), user_of(copy, "leave") as process:
        process.kill()
    run(opened(copy))
    assert keys_in(copy) == ["kept"]


@shown_locks
def test_a_file_that_was_renamed_under_a_process_is_not_opened_until_that_has_ended(
    path: Path, run: Run
) -> None:
    """What was written last is in a log beside the earlier name."""
    other = path.with_name("other.db")
    with user_of(path, "close") as process:
        path.rename(other)
        said = refusal(run, other)
        assert f"process {process.pid} " in said
        assert f"{path}-shm" in said
        other.rename(path)
        run(opened(path))
    assert keys_in(path) == ["kept"]


@pytest.mark.parametrize("length", [248, 251])
def test_a_name_that_leaves_no_room_for_those_beside_it_is_refused(
    path: Path, run: Run, length: int
) -> None:
    long = path.with_name("n" * length)
    assert "-journal cannot be reached: File name too long" in refusal(run, long)
    assert list(path.parent.iterdir()) == [path]
    path.rename(long)
    assert "-journal cannot be reached: File name too long" in refusal(run, long)


def test_a_log_that_is_left_of_another_file_is_not_taken_up(path: Path, run: Run) -> None:
    """SQLite would write it over the new file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE left (n)")
        shutil.copy(f"{path}-wal", path.with_name("kept"))
    path.unlink()
    path.with_name("kept").rename(f"{path}-wal")
    assert re.search("-wal is left of a file that is gone.*remove", refusal(run, path))
    assert not path.exists()


# --- mounts


def test_a_file_that_is_mounted_by_itself_is_refused_and_its_folder_is_not(
    path: Path, run: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "container"
    folder.mkdir()
    point = folder / "board.db"
    point.touch()
    with mounted(path, point):
        assert re.search(f"{point} is itself a mount point.*mount the folder", refusal(run, point))
        link = tmp_path / "link.db"
        link.symlink_to(point)
        assert "mount point" in refusal(run, link, Opening(trusted=True))
        run(opened(path))
    with mounted(path.parent, folder):

        async def story() -> list[str]:
            here = await SqliteTable.open(path, ManualClock())
            there = await SqliteTable.open(folder / path.name, ManualClock())
            await here.commit(P, [Insert("a", {"n": 1})])
            await there.commit(P, [Insert("b", {"n": 1})])
            found = [row.key for row in await rows_of(here, P)]
            await here.close()
            await there.close()
            return found

        assert run(story()) == ["a", "b"]


@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("trusted", [False, True])
def test_what_the_mount_table_shows_as_a_mount_point_is_refused(
    path: Path, run: Run, end: str, *, trusted: bool
) -> None:
    mounts = [Mount("/", "ext4"), Mount(f"{path.resolve()}{end}", "ext4")]
    said = refusal(run, path, Opening(mounts=mounts, trusted=trusted))
    assert f"{path}{end} is itself a mount point" in said


def test_a_mount_of_the_file_that_another_one_hides_is_no_name_of_it(path: Path, run: Run) -> None:
    """The folder that holds it was mounted over since."""
    place = path.resolve()
    lines = [
        "27 1 254:0 / / rw - ext4 /dev/vda rw",
        f"30 27 254:0 /other.db {place} rw - ext4 /dev/vda rw",
        f"31 27 0:41 / {place.parent} rw - ext4 /dev/vdb rw",
    ]
    shown = from_mountinfo("\n".join(lines))
    assert mount_at(place, shown).point == str(place.parent)
    run(opened(path, Opening(mounts=shown)))
    assert "is itself a mount point" in refusal(run, path, Opening(mounts=shown[:2]))


def test_another_file_that_is_mounted_over_it_stops_its_workers(
    path: Path, run: Run, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    run(opened(other))
    table = run(SqliteTable.open(path, ManualClock()))
    try:
        with mounted(other, path), pytest.raises(Unusable, match="removed or replaced"):
            run(table.commit(P, [Insert("a", {"n": 1})]))
    finally:
        run(table.close())


# --- kinds of file systems

REFUSED = [
    *sorted(SHARED),
    "AppleVirtIOFS",
    "fuse",
    "fuse.cephfs",
    "fuse.glusterfs",
    "fuse.grpcfuse",
    "fuse.mergerfs",
    "fuse.mfs",
    "fuse.osxfs",
    "fuse.sshfs",
    "macfuse",
    "osxfuse",
]
GOOD = ["", "apfs", "btrfs", "ext4", "fuseblk", "hfs", "overlay", "tmpfs", "xfs", "zfs"]


@pytest.mark.parametrize("kind", REFUSED)
def test_a_shared_file_system_is_refused_unless_it_is_trusted(
    path: Path, run: Run, kind: str
) -> None:
    mounts = [Mount("/", "ext4"), Mount(str(path.parent.resolve()), kind)]
    said = refusal(run, path, Opening(mounts=mounts))
    assert re.search(rf"\({re.escape(kind)}\).*local disk.*\?trust_filesystem=1", said), said
    run(opened(path, Opening(mounts=mounts, trusted=True)))


@pytest.mark.parametrize("kind", GOOD)
def test_a_file_system_of_this_host_is_good(path: Path, run: Run, kind: str) -> None:
    mounts = [Mount("/", "nfs"), Mount(str(path.parent.resolve()), kind)]
    run(opened(path, Opening(mounts=mounts)))


HIDDEN = """\
27 1 254:0 / / rw - ext4 /dev/vda rw
30 27 0:40 / /mnt/a rw - ext4 /dev/vdb rw
31 27 0:41 / /mnt rw - nfs4 nas:/ rw
32 27 0:42 / /srv rw - nfs4 nas:/ rw
33 32 0:43 / /srv rw - ext4 /dev/vdc rw
34 33 0:44 / /srv/a\\012b rw - cifs //nas/a rw
35 27 0:45 / /srv/\u2028c rw - cifs //nas/c rw
36 27 0:46 / /home rw - autofs systemd-1 rw
37 36 0:47 / /home/ann rw - nfs4 nas:/ann rw
38 37 0:48 / /home/ann/own rw - btrfs /dev/vdd rw
39 32 0:49 / /srv/x rw - nfs4 nas:/x rw
"""
SHOWN = {
    "/mnt/a/b.db": "nfs4",
    "/srv/b.db": "",
    "/srv/a\nb/b.db": "cifs",
    "/srv/x/b.db": "",
    "/home/ann/b.db": "nfs4",
    "/home/ann/own/b.db": "",
    "/home/b.db": "",
}


@pytest.mark.parametrize("place", SHOWN)
def test_a_mount_that_another_one_hides_does_not_count(place: str) -> None:
    assert shared_kind(Path(place), from_mountinfo(HIDDEN)) == SHOWN[place]


def test_a_line_ends_where_the_kernel_ends_it() -> None:
    assert Mount("/srv/\u2028c", "cifs", 35, 27) in from_mountinfo(HIDDEN)


def test_below_a_root_that_is_no_mount_the_others_still_count() -> None:
    mounts = from_mountinfo(
        "40 27 0:40 / /data rw - nfs4 nas:/ rw\n41 27 0:4 / /proc rw - proc p rw\n"
    )
    assert mount_at(Path("/data/b.db"), mounts).kind == "nfs4"
    assert mount_at(Path("/b.db"), mounts).kind == ""


# --- two processes


def test_the_command_line_says_what_to_do(path: Path) -> None:
    other = path.with_name("other.db")
    other.hardlink_to(path)
    done = subprocess.run(
        [sys.executable, "-m", "blackboard", "--store", str(other), "show"],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(60),
    )
    assert done.returncode == 2
    assert "2 names (hard links)" in done.stderr


def test_processes_that_make_one_board_at_once_never_see_two_names(tmp_path: Path) -> None:
    async def story() -> None:
        for number in range(30):
            path = tmp_path / f"{number}.db"
            tables = await asyncio.gather(
                *(SqliteTable.open(path, ManualClock(), Opening(create=True)) for _ in range(4))
            )
            for table in tables:
                await table.commit(P, [])
                assert await rows_of(table, P) == []
                await table.close()

    asyncio.run(story())
