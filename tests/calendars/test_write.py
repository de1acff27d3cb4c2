"""Files appear whole, in their own folder, and never over those of a later run."""

import asyncio
import errno
import fcntl
import json
import logging
import os
from datetime import date
from pathlib import Path

import pytest

from blackboard import BadInput
from blackboard.errors import BlackboardError
from jobs.calendars import publish as write
from jobs.calendars.cache import load_cache
from jobs.calendars.output import calendar_file, events_file
from jobs.calendars.publish import CACHE, CALENDAR, EVENTS, REPORT, Overtaken, file_name, output_of
from jobs.calendars.records import Window


def publish(
    folder: Path, fence: int, *, fenced: bool = True, mark: str = "", name: str = "t"
) -> None:
    head = json.dumps({"id": name, "fence": fence}).encode()
    text = (mark or str(fence)).encode()
    files = {REPORT: head, CALENDAR: text, EVENTS: text, CACHE: head}
    asyncio.run(output_of(folder, name).publish(files, fence=fence, fenced=fenced))


def content(folder: Path) -> str:
    return (folder / "t.ics").read_text()


def test_a_folder_is_made_and_holds_the_files_and_nothing_else_that_shows(tmp_path: Path) -> None:
    publish(tmp_path / "a" / "b", 1)
    names = sorted(path.name for path in (tmp_path / "a" / "b").iterdir())
    assert names == [".t.lock", "t.cache.json", "t.ics", "t.json", "t.report.json"]


@pytest.mark.parametrize(
    ("first", "second", "fenced", "winner"),
    [(1, 2, True, "2"), (2, 2, True, "2"), (2, 1, False, "1"), (1, 2, False, "2")],
)
def test_an_equal_or_higher_fence_replaces_and_unfenced_the_last(
    tmp_path: Path, first: int, second: int, *, fenced: bool, winner: str
) -> None:
    publish(tmp_path, first)
    publish(tmp_path, second, fenced=fenced)
    assert content(tmp_path) == winner


def test_an_equal_fence_is_a_retry_of_the_same_run(tmp_path: Path) -> None:
    publish(tmp_path, 2, mark="first")
    publish(tmp_path, 2, mark="second")
    assert content(tmp_path) == "second"


@pytest.mark.parametrize("lost", [None, REPORT, CACHE])
def test_a_lower_fence_replaces_nothing_also_when_one_file_is_lost(
    tmp_path: Path, lost: str | None
) -> None:
    publish(tmp_path, 7)
    if lost is not None:
        (tmp_path / f"t{lost}").write_bytes(b"\xff damaged")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(Overtaken, match="fence 7"):
        publish(tmp_path, 6)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_lower_fence_replaces_nothing_where_it_cannot_be_read_who_has_written_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    publish(tmp_path, 7)
    with monkeypatch.context() as context:
        context.setattr(write, "bytes_of", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            publish(tmp_path, 1)
    assert content(tmp_path) == "7"


def test_a_crash_between_two_files_leaves_nothing_for_an_earlier_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(write, "_ORDER", (*write._ORDER[:2], "/nowhere"))
        with pytest.raises(KeyError):
            asyncio.run(
                output_of(tmp_path, "t").publish(
                    _Breaking({REPORT: b'{"fence": 3}', CALENDAR: b"3"}), fence=3, fenced=True
                )
            )
    assert content(tmp_path) == "3"
    with pytest.raises(Overtaken):
        publish(tmp_path, 2)


class _Breaking(dict[str, bytes]):
    def __contains__(self, _ending: object) -> bool:
        return True


def test_a_full_disk_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path, 1)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        publish(tmp_path, 2)
    assert content(tmp_path) == "1"
    assert not list(tmp_path.glob("*.tmp")) + list(tmp_path.glob(".*.tmp"))


def test_what_a_killed_run_left_is_cleared_away_but_not_that_of_others(tmp_path: Path) -> None:
    for left in (".t.0123456789ab.tmp", ".tt.0123456789ab.tmp"):
        (tmp_path / left).touch()
    publish(tmp_path, 1)
    assert [path.name for path in tmp_path.glob(".*.tmp")] == [".tt.0123456789ab.tmp"]


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    out = tmp_path / "out"
    out.mkdir()
    (out / "t.ics").symlink_to(precious)
    publish(out, 1)
    assert precious.read_text() == "precious"
    assert not (out / "t.ics").is_symlink()
    assert content(out) == "1"


@pytest.mark.parametrize(
    ("ending", "text"),
    [(EVENTS, '{"name": "a package"}'), (EVENTS, "// settings"), (CALENDAR, "BEGIN:VCALENDAR")],
)
def test_a_file_of_other_software_is_not_replaced(tmp_path: Path, ending: str, text: str) -> None:
    file = tmp_path / f"t{ending}"
    file.write_text(text)
    with pytest.raises(BadInput, match=rf"t{ending} .*not replaced .*another folder"):
        publish(tmp_path, 1)
    assert file.read_text() == text
    assert not (tmp_path / f"t{REPORT}").exists()
    file.write_bytes(b"")
    publish(tmp_path, 1)
    assert file.read_text() == "1"


def test_files_of_the_city_are_replaced_also_where_its_report_was_deleted(tmp_path: Path) -> None:
    window = Window(date(2026, 8, 21), 9, "UTC")
    (tmp_path / "t.ics").write_bytes(calendar_file("t", (), window))
    (tmp_path / "t.json").write_bytes(events_file("t", (), window))
    publish(tmp_path, 1)
    assert content(tmp_path) == "1"


@pytest.mark.parametrize("ending", [REPORT, CACHE])
@pytest.mark.parametrize("target", ["pipe", "device"])
def test_what_would_be_read_without_end_in_the_place_of_a_file_is_refused(
    tmp_path: Path, ending: str, target: str
) -> None:
    if target == "pipe":
        os.mkfifo(tmp_path / f"t{ending}")
    else:
        (tmp_path / f"t{ending}").symlink_to("/dev/zero")
    with pytest.raises(OSError, match=f"not a file.*t{ending}"):
        publish(tmp_path, 1)
    with pytest.raises(BadInput, match=f"t{ending}: not a file"):
        load_cache(tmp_path / f"t{ending}", logging.getLogger())


def test_a_link_in_the_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".t.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"\.t\.lock"):
        publish(tmp_path, 1)
    assert not (tmp_path / "elsewhere").exists()


def test_one_run_writes_at_a_time_and_the_other_says_why_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path, 1)
    monkeypatch.setattr(write, "_LOCK_WITHIN", 0.1)
    with (tmp_path / ".t.lock").open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BlackboardError, match="another run"):
            publish(tmp_path, 2)
    publish(tmp_path, 2)
    assert content(tmp_path) == "2"


def test_a_file_is_as_readable_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        publish(tmp_path, 1)
    finally:
        os.umask(before)
    assert (tmp_path / "t.ics").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_a_folder_that_cannot_be_is_bad_input(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"params\.out"):
        output_of(tmp_path / folder, "t")


ODD = [
    "..",
    ".",
    ".hidden",
    "a/b",
    "/etc/passwd",
    "a\nb",
    "\U0001f389",
    "CON",
    "a b",
    "ü",
    "x" * 512,
    "=2E",
    "\0",
]


@pytest.mark.parametrize("item_id", ODD)
def test_any_id_is_a_name_within_the_folder(tmp_path: Path, item_id: str) -> None:
    name = file_name(item_id)
    assert "/" not in name
    assert not name.startswith(".")
    assert len(f".{name}.0123456789ab.tmp{REPORT}") < 255
    publish(tmp_path / "out", 1, name=item_id)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / f"{name}.ics").exists()


def test_the_files_of_two_ids_never_meet() -> None:
    ids = [
        *ODD,
        "t",
        "t.report",
        "t.cache",
        "t.json",
        "t.report.json",
        "T",
        "t.REPORT",
        "T.Cache",
        "t.Json",
        "Ü",
        "x" * 513,
        "t=2Ereport",
    ]
    files = [file_name(one) + ending for one in ids for ending in (REPORT, CALENDAR, EVENTS, CACHE)]
    assert len(set(files)) == len(files)


@pytest.mark.parametrize(("one", "other"), [("t", "T"), ("a.Report", "A.report"), ("ü", "ü ")])
def test_files_of_ids_that_differ_in_more_than_capitals_never_meet(one: str, other: str) -> None:
    """Where `A` and `a` are one name, a file of one id is of another id with the same letters."""
    endings = (REPORT, CALENDAR, EVENTS, CACHE)
    mine, theirs = (
        {(file_name(name) + ending).lower(): ending for ending in endings} for name in (one, other)
    )
    assert all(theirs[name] == ending for name, ending in mine.items() if name in theirs)


def test_a_city_never_takes_the_files_of_another(tmp_path: Path) -> None:
    """As they are found where a file system takes `Davis` and `davis` for one name."""
    theirs = b'{"id": "Davis", "fence": 1}'
    for ending in (REPORT, CALENDAR):
        (tmp_path / f"davis{ending}").write_bytes(theirs)
    with pytest.raises(BadInput, match=r"params\.out: .* is of the city 'Davis'.*another folder"):
        publish(tmp_path, 7, name="davis")
    assert {path.read_bytes() for path in tmp_path.glob("davis*")} == {theirs}
