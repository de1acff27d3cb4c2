"""Ages of rows whose writers may live on another scale: never overstated, and never without end."""

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from blackboard.clock import SystemClock
from blackboard.model import Lock, Member, Token, replace
from blackboard.protocol.additions import New, add
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim, claim, override, renew
from blackboard.protocol.members import announce, workers
from blackboard.spec import Spec
from blackboard.table import ANY, Insert, Merge, Row, Table, read
from blackboard.tables import sqlite_ages
from blackboard.tables.sqlite import SqliteTable
from blackboard.tables.sqlite_ages import KERNEL, Ages, boot_id, one_has_ended, unproven
from blackboard.tables.sqlite_file import Stamp
from blackboard.tables.sqlite_open import Opening
from tests.support.boards import make_board
from tests.support.clocks import ManualClock
from tests.support.patience import patience
from tests.support.stores import Run

P = "town"
DAY = 86_400.0


def seen(ages: Ages, *, etag: str = "1", boot: str = "b", touched: float = 0.0) -> float:
    return ages.of(Row("a", etag, {}, Stamp(boot, touched)))


# --- which scale a stamp is on


@pytest.mark.parametrize("touched", [0.0, 999.0, 1000.0, 1001.0, 5 * DAY])
def test_a_row_of_another_scale_is_as_old_as_it_was_seen_unchanged(touched: float) -> None:
    clock = ManualClock(monotonic=1000.0)
    ages = Ages("a", clock)
    assert seen(ages, touched=touched) == 0
    clock.advance(59)
    assert seen(ages, touched=touched) == 59
    assert seen(ages, etag="2", touched=touched) == 0, "it was written"
    clock.advance(61)
    assert seen(ages, etag="2", touched=touched) == 61


@pytest.mark.parametrize("ours", ["kernel:a", "a"])
@pytest.mark.parametrize("theirs", ["kernel:b", "b"])
def test_only_of_two_boots_of_one_kernel_is_the_other_over(ours: str, theirs: str) -> None:
    is_over = (ours, theirs) == ("kernel:a", "kernel:b")
    assert one_has_ended(theirs, ours) is is_over
    assert seen(Ages(ours, ManualClock()), boot=theirs) == (math.inf if is_over else 0)


def test_a_stamp_of_the_future_is_from_before_a_clock_went_back() -> None:
    """A machine that is set back to a snapshot keeps its boot; the disk may be a later one."""
    clock = ManualClock(monotonic=50.0)
    ages = Ages("kernel:a", clock)
    assert seen(ages, boot="kernel:a", touched=9 * DAY) == 0
    clock.advance(60)
    assert seen(ages, boot="kernel:a", touched=9 * DAY) == 60, "not after nine days alone"
    assert seen(ages, boot="kernel:a", etag="2", touched=100.0) == 10


def test_a_reader_whose_own_clock_goes_back_begins_anew() -> None:
    late, early = ManualClock(monotonic=1000.0), ManualClock(monotonic=10.0)
    ages = Ages("a", late)
    assert seen(ages) == 0
    ages._clock = early
    assert seen(ages) == 0
    early.advance(7)
    assert seen(ages) == 7


def test_rows_of_one_key_on_two_boards_of_a_file_do_not_make_each_other_young() -> None:
    clock = ManualClock()
    ages = Ages("a", clock)
    for second in range(90):
        assert [seen(ages, etag=etag) for etag in ("1", "2")] == [second, second]
        clock.advance(1)


def test_rows_that_are_not_asked_for_any_more_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sqlite_ages, "MANY", 100)
    clock = ManualClock()
    ages = Ages("a", clock)
    for number in range(20_000):
        clock.advance(36)
        assert ages.of(Row(f"lock:{number}", str(number), {}, Stamp("b", 0))) == 0
        ages.of(Row("lock:kept", "1", {}, Stamp("b", 0)))
        assert len(ages._sights) < 400
    assert ages.of(Row("lock:kept", "1", {}, Stamp("b", 0))) == 19_999 * 36.0


# --- a board under two boots


async def claimed(table: Table, clock: ManualClock) -> tuple[BoardTable, Claim]:
    board = await make_board(table, clock)
    await add(board, New(id="davis", type="feed", spec=Spec(every="1h", stale_after="10s")))
    due = board.walk(0, until=clock.now())
    tokens = [found async for found in due if isinstance(found, Token)]
    [made] = (await claim(board, tokens, owner="ann:1:a")).claims
    return board, made


async def lock_of(board: BoardTable) -> Lock:
    found = await board.lock("davis")
    assert found is not None
    return found


@pytest.mark.parametrize("offset", [0.0, 30 * DAY, -900.0])
def test_a_lock_that_is_renewed_in_another_container_is_never_taken(
    tmp_path: Path, run: Run, offset: float
) -> None:
    """Each is shown a boot of its own, and perhaps a clock that is set off."""

    async def story() -> None:
        path = tmp_path / "blackboard.db"
        clocks = ManualClock(monotonic=1000.0), ManualClock(monotonic=1000.0 + offset)
        ann = await SqliteTable.open(path, clocks[0], Opening(create=True, boot="one"))
        ben = await SqliteTable.open(path, clocks[1], Opening(boot="two"))
        board, held = await claimed(ann, clocks[0])
        other = await make_board(ben, clocks[1])
        for _ in range(60):
            for clock in clocks:
                clock.advance(3)
            renewed = await renew(board, held)
            assert renewed is not None
            held = renewed
            assert (await lock_of(other)).age <= 3
        for clock in clocks:
            clock.advance(9)
        assert (await lock_of(other)).age <= held.stale_after
        for clock in clocks:
            clock.advance(2)
        stale = await lock_of(other)
        assert stale.age > stale.stale_after + ben.resolution, "its holder has died"
        taken = await override(other, stale, owner="ben:2:b")
        assert taken is not None
        assert taken.fence == held.fence + 1
        await ann.close()
        await ben.close()

    run(story())


def test_a_file_that_other_kernels_may_write_proves_no_reboot(tmp_path: Path, run: Run) -> None:
    """A virtual machine and its host, over a file system that is trusted."""

    async def story() -> list[float]:
        path = tmp_path / "blackboard.db"
        host = await SqliteTable.open(path, ManualClock(), Opening(create=True, boot="kernel:host"))
        await host.commit(P, [Insert("a", {"n": 1})])
        guest = await SqliteTable.open(
            path, ManualClock(), Opening(boot="kernel:guest", trusted=True)
        )
        ages = [await age(guest, "a")]
        await guest.commit(P, [Merge("a", {"n": 2}, ANY)])
        ages.append(await age(host, "a"))
        await host.close()
        await guest.close()
        return ages

    assert run(story()) == [0, 0]


async def age(table: Table, key: str) -> float:
    row = await read(table, P, key)
    assert row is not None
    return table.age(row)


# --- what this host says


def said_under(*command: str) -> str:
    """The boot that a process says it is in which was started by a command, as root."""
    code = "from blackboard.tables.sqlite_ages import boot_id; print(boot_id())"
    done = subprocess.run(
        [*command, sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    if os.geteuid() or done.returncode:
        pytest.skip(f"this host does not do that: {done.stderr[-200:]}")
    return done.stdout.strip()


def test_the_kernels_own_id_is_known_for_what_it_is() -> None:
    if not Path("/proc/self/ns/time").exists():
        pytest.skip("no namespaces of time here")
    assert boot_id() == boot_id()
    assert boot_id().startswith(KERNEL)
    assert unproven(boot_id()) == boot_id().removeprefix(KERNEL)


MOUNT = 'mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"'


@pytest.mark.parametrize("shown", ["a file", "the kernel's own uuid"])
def test_an_id_that_a_container_is_shown_proves_nothing(tmp_path: Path, shown: str) -> None:
    private = tmp_path / "boot_id"
    private.write_text("d1e50a4e-0000-4000-8000-000000000001\n")
    source = str(private) if shown == "a file" else "/proc/sys/kernel/random/uuid"
    said = said_under("unshare", "--mount", "sh", "-c", MOUNT, "sh", source)
    assert not said.startswith(KERNEL)
    if shown == "a file":
        assert said == private.read_text().strip()


def test_settings_of_the_kernel_that_are_mounted_for_reading_alone_are_the_kernels_own() -> None:
    """As Docker has them, and systemd with ProtectKernelTunables."""
    readable = "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys"
    said = said_under("unshare", "--mount", "sh", "-c", f'{readable} && exec "$@"', "sh")
    assert said == boot_id()


def test_a_clock_that_is_set_off_is_another_scale() -> None:
    set_off: Sequence[str] = ("unshare", "--time", "--fork", "--monotonic", "100000")
    said = said_under(*set_off)
    assert not said.startswith(KERNEL)
    assert said.startswith(unproven(boot_id()))
    assert said != unproven(boot_id())
    assert "100000" in said


WRITE = """
import asyncio, sys, time
from pathlib import Path
from blackboard.clock import SystemClock
from blackboard.table import Insert, Merge, read
from blackboard.tables.sqlite import SqliteTable
from blackboard.tables.sqlite_open import Opening

async def main(path):
    table = await SqliteTable.open(path, SystemClock(), Opening(create=True))
    [etag] = await table.commit("town", [Insert("a", {"n": 0})])
    print("there", flush=True)
    sys.stdin.readline()
    await table.close()

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize("contained", ["boot", "clock"])
def test_a_real_process_in_a_container_is_not_taken_for_dead(
    tmp_path: Path, run: Run, contained: str
) -> None:
    path = tmp_path / "blackboard.db"
    private = tmp_path / "boot_id"
    private.write_text("d1e50a4e-0000-4000-8000-000000000001\n")
    command = {
        "boot": ["unshare", "--mount", "sh", "-c", MOUNT, "sh", str(private)],
        "clock": ["unshare", "--time", "--fork", "--monotonic", "100000"],
    }[contained]
    said_under(*command)
    with subprocess.Popen(
        [*command, sys.executable, "-c", WRITE, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"

        async def looked() -> float:
            table = await SqliteTable.open(path, SystemClock())
            found = await age(table, "a")
            await table.close()
            return found

        assert run(looked()) < timedelta(hours=1).total_seconds()
        child.communicate("\n", timeout=patience(60))


def test_a_worker_of_a_container_that_is_gone_is_forgotten_after_a_day(
    tmp_path: Path, run: Run
) -> None:
    """Whoever starts looks once, so it cannot tell its age from the store."""

    async def story() -> list[str]:
        path, clock = tmp_path / "blackboard.db", ManualClock()
        gone = await SqliteTable.open(path, clock, Opening(create=True, boot="one"))
        start = clock.now()
        member = Member(
            owner="host:1:a", started=start, seen=start, slots=8, running=0, release="1"
        )
        await announce(await make_board(gone, clock), member)
        await gone.close()
        clock.advance(DAY + 1)
        table = await SqliteTable.open(path, clock, Opening(boot="two"))
        board = await make_board(table, clock)
        await announce(board, replace(member, owner="host:1:b"))
        found = [one.owner for one in await workers(board)]
        await table.close()
        return found

    assert run(story()) == ["host:1:b"]
