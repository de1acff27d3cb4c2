"""The demo, each story played once for real as a program of its own: that of the towns by what is
installed from the wheel, that of partitions by this checkout; and the output they are played on.
"""

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import psutil
import pytest

from blackboard.cli import called, demo
from blackboard.demo.feeds import BROKEN, TOWNS, feeds_of
from blackboard.demo.output import Output, TerminalOutput, cropped
from blackboard.display.layout import Line, Style
from blackboard.tables.azurite import Emulator
from tests.house.test_wheel import Installed, installed, wheel
from tests.support.patience import is_over, patience

__all__ = ["installed", "wheel"]

LIMIT = patience(60.0)
"""Seconds that the demo may take: a minute on a quiet machine."""
PROGRAM = [sys.executable, "-m", "blackboard"]


def environment(folder: Path, program: Sequence[str] = PROGRAM) -> dict[str, str]:
    """Temporary folders go to `folder`; the reader keeps a board somewhere else. What is installed
    has compiled its modules.
    """
    mine = {"TMPDIR": str(folder), "BLACKBOARD_PROG": "./bb", "BLACKBOARD_STORE": "/nowhere/at.all"}
    passed_over = set() if program is PROGRAM else {"PYTHONPYCACHEPREFIX"}
    known = {name: text for name, text in os.environ.items() if name not in passed_over}
    return {**known, **mine}


def left_behind(folder: Path) -> list[list[str]]:
    """Command lines of processes that have to do with `folder`."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(folder) in one for one in (*process.cmdline(), process.cwd())):
                found.append(process.cmdline())
        except psutil.Error:
            continue
    return found


def wait_for(condition: Callable[[], bool], what: str) -> None:
    begun = time.monotonic()
    while not condition():
        assert not is_over(begun, patience(30)), f"waited in vain for {what}"
        time.sleep(0.05)


@dataclass(frozen=True)
class Played:
    """A demo that is over."""

    code: int
    out: str
    err: str
    root: Path
    store: str
    """Where it was told to play; "" if it was not."""
    left: list[list[str]]
    program: list[str]

    @property
    def folder(self) -> Path:
        (folder,) = self.root.iterdir()
        return folder

    def says(self, *arguments: str) -> Any:
        """JSON of a command about the demo's board."""
        store = self.store or str(self.folder / "blackboard.db")
        options = ("--store", store, "--config", str(self.folder / "blackboard.toml"), "--json")
        command = [*self.program, *options, *arguments]
        done = subprocess.run(command, capture_output=True, check=True)
        return json.loads(done.stdout)


def picture_of(root: Path) -> Path:
    """Where the demo in this folder draws the board."""
    return root.with_name(f"{root.name}.svg")


def play(root: Path, store: str, *options: str, program: list[str]) -> Played:
    """A whole demo, in a folder below `root`."""
    where = ["--store", store] if store else []
    done = subprocess.run(
        [*program, "demo", "--svg", str(picture_of(root)), *options, *where],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
        cwd="/",
        env=environment(root, program),
    )
    return Played(
        done.returncode, done.stdout, done.stderr, root, store, left_behind(root), program
    )


@pytest.fixture(scope="module", name="played")
def _played(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Played:
    program = [str(installed.python), "-m", "blackboard"]
    return play(tmp_path_factory.mktemp("demo"), "", program=program)


def test_the_demo_ends_well_and_leaves_no_process(played: Played) -> None:
    assert (played.code, played.err, played.left) == (0, "", [])


def test_every_town_is_done(played: Played) -> None:
    towns = played.says("show")
    assert [one["id"] for one in towns] == [town.id for town in TOWNS]
    assert {(one["outcome"], one["running"]) for one in towns} == {("ok", False)}


def test_the_killed_worker_is_told_as_abandoned_and_another_took_over(played: Played) -> None:
    runs = played.says("log", "-n", "100")
    abandoned = [one for one in runs if one["outcome"] == "abandoned"]
    assert abandoned
    for lost in abandoned:
        heirs = [
            one for one in runs if (one["id"], one["fence"]) == (lost["id"], lost["fence"] + 1)
        ]
        assert [one["outcome"] for one in heirs] == ["ok"]
        assert heirs[0]["worker"] != lost["worker"]
        assert heirs[0]["due"] == lost["due"]
        assert f"What the board has recorded of {lost['id']}" in played.out or len(abandoned) > 1
    assert len({one["worker"] for one in abandoned}) == 1


def test_the_acts_are_told_in_order(played: Played) -> None:
    titles = re.findall(r"^(\d)  \S", played.out, re.MULTILINE)
    assert titles == ["1", "2", "3", "4", "5", "6"]
    told = played.out.split("All is done")[1]
    assert re.search(
        r"^   id: \S+\n   start: \S+Z\n   stop: \S+Z\n   running: False$", told, re.MULTILINE
    )
    assert "Farmers' market" in told
    assert "town-hall, parks" in told
    assert str(played.folder) in played.out


def test_what_is_told_fits_80_columns_and_steers_no_terminal(played: Played) -> None:
    told, _ = played.out.replace(str(played.folder), "").split("Three commands to try next")
    told = told.replace(played.store, "")
    assert max(map(len, told.splitlines())) <= 80
    assert "\x1b" not in played.out


def test_every_town_has_its_files_and_one_feed_alone_is_broken(played: Played) -> None:
    out = played.folder / "out"
    failed = []
    for town in TOWNS:
        assert (out / f"{town.id}.ics").read_bytes().startswith(b"BEGIN:VCALENDAR")
        assert json.loads((out / f"{town.id}.json").read_bytes())["timezone"] == town.zone
        report = json.loads((out / f"{town.id}.report.json").read_bytes())
        failed += [(town.id, one["name"]) for one in report["feeds"] if one["status"] == "failed"]
        assert report["summary"]["duplicates"] > 0, "the market is announced twice"
    assert failed == [BROKEN]


def test_the_commands_to_try_next_work_as_they_are_written(played: Played) -> None:
    commands = commands_to_try(played)
    assert [one[4] for one in commands] == ["show", "log", "why"]
    for one in commands:
        assert typed(one, played)


def commands_to_try(played: Played) -> list[list[str]]:
    lines = re.findall(r"^   \./bb (.*)$", played.out, re.MULTILINE)
    return [shlex.split(one) for one in lines]


def typed(command: Sequence[str], played: Played, *, codes: Sequence[int] = (0,)) -> str:
    """What a command says to whoever keeps a board somewhere else."""
    done = subprocess.run(
        [*played.program, *command],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env=environment(played.root, played.program),
    )
    assert (done.returncode, done.stderr) in [(code, "") for code in codes]
    return done.stdout


def test_workers_share_partitions_and_what_they_saved_goes_on(
    azurite: Emulator, tmp_path: Path
) -> None:
    """In a store that is named, on a board of its own: others in the same table are left alone."""
    store = azurite.store("demo")
    for word in ("init", "add davis --type hello"):
        subprocess.run([*PROGRAM, "--store", store, *word.split()], capture_output=True, check=True)
    played = play(tmp_path, store, "--sharing", program=PROGRAM)
    assert (played.code, played.err, played.left) == (0, "", [])
    assert re.findall(r"^(\d)  \S", played.out, re.MULTILINE) == ["1", "2", "3", "4", "5", "6"]
    board = tomllib.loads((played.folder / "blackboard.toml").read_text())["board"]["name"]
    held = re.findall(r"^ *12 of 12 partitions held by (\d) workers$", played.out, re.MULTILINE)
    assert held == ["3", "4", "3", "2"]
    *_, leader, log = commands_to_try(played)  # those before go on
    assert "report" in typed(leader, played, codes=(0, 1))  # nobody has led for a lease, perhaps
    assert "clicks" in typed(log, played)
    lines = [one for one in played.out.splitlines() if str(tmp_path) not in one]
    assert max(map(len, lines)) <= 80
    group = ("--board", f"{board}.clicks")
    assert len(played.says("show")) == 0
    outcomes = [one["outcome"] for one in played.says(*group, "log", "-n", "100")]
    assert outcomes.count("abandoned") == 3  # what one of four held
    assert set(outcomes) == {"abandoned", "cancelled"}
    assert all(one["checkpoint"] > 5 for one in played.says(*group, "show"))
    elections = {one["id"]: one for one in played.says("--board", f"{board}.leaders", "show")}
    assert elections.keys() <= {"report", "coordinator"}  # the second, where the demo took long
    assert elections["report"]["fence"] == 2
    assert not list(played.folder.glob("*.db"))
    done = subprocess.run([*PROGRAM, "--store", store, "export"], capture_output=True, check=True)
    assert re.findall(rb'^id = "(.*)"$', done.stdout, re.MULTILINE) == [b"davis"]


@pytest.mark.parametrize(
    ("named", "code", "told"),
    [
        ("azurite://127.0.0.1:1/towns", 3, "(`blackboard azurite` starts an emulator)"),
        ("memory:", 2, "(a path, or azurite:)"),
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_a_store_that_cannot_be_used_is_told_and_nothing_is_begun(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    named: str,
    code: int,
    told: str,
    place: int,
) -> None:
    """Before the command or behind it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    line = ["--store", named]
    line.insert(2 * place, "demo")
    assert called(line) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert told in err
    assert list(tmp_path.iterdir()) == []


def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_begun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert called(["demo", "--svg", str(tmp_path / "missing" / "x.svg")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "svg: " in err
    assert "No such file or directory (name a file that can be written)" in err
    assert list(tmp_path.iterdir()) == []


def texts_of(picture: str) -> list[ET.Element]:
    return [one for one in ET.fromstring(picture).iter() if one.tag.endswith("text")]


def test_its_picture_has_a_stale_lock_and_loads_nothing(played: Played) -> None:
    picture = picture_of(played.root).read_text(encoding="utf-8")
    assert ET.fromstring(picture).tag.endswith("svg")
    (name,) = re.findall(r"its\s+locks\s+stay:\s+on\s+([\w-]+)", played.out)  # the first of them
    if "stale" not in picture:  # the other worker was faster than the look at the board
        (row,) = {one.get("y") for one in texts_of(picture) if one.text and name in one.text}
        owners = [one.text for one in texts_of(picture) if one.get("y") == row]
        assert re.search(r"\bA\W\d+", " ".join(filter(None, owners)))
    assert not re.search(r"@font-face|@import|<script|<image|url\((?!#)|href=", picture)


@pytest.fixture(name="demo")
def _demo(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A demo whose workers are at work."""
    process = subprocess.Popen(
        [*PROGRAM, "demo"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
    )
    try:
        wait_for(lambda: len(list(tmp_path.glob("*/worker-B.log"))) == 1, "two workers")
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_takes_its_workers_with_it(
    demo: subprocess.Popen[bytes], tmp_path: Path, number: signal.Signals
) -> None:
    demo.send_signal(number)
    _, err = demo.communicate(timeout=LIMIT)
    assert (demo.returncode, err) == (130, b"blackboard: interrupted\n")
    assert left_behind(tmp_path) == []


def test_a_worker_that_fails_ends_the_demo_and_the_other_worker(
    demo: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    def workers() -> list[psutil.Process]:
        return [one for one in psutil.Process(demo.pid).children() if "worker" in one.cmdline()]

    wait_for(lambda: len(workers()) == 2, "two workers")
    workers()[0].send_signal(signal.SIGABRT)
    _, err = demo.communicate(timeout=LIMIT)
    assert demo.returncode == 1
    assert re.fullmatch(rb"blackboard: worker A ended with -6: see .+/worker-A.log\n", err)
    assert left_behind(tmp_path) == []


def test_without_the_extra_the_remedy_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "NEEDED", ("click", "no_such_package"))
    assert called(["demo"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "no_such_package" in err
    assert "pip install 'blackboard-scheduler[calendars]'" in err


@pytest.mark.parametrize("town", TOWNS, ids=lambda town: town.id)
def test_the_same_day_gives_the_same_feeds(town: Any) -> None:
    day = date(2027, 2, 28)
    feeds = list(feeds_of(town, day))
    assert feeds == list(feeds_of(town, day))
    assert len({one.group for one in feeds}) == len(feeds)


# ---- the output


class Terminal(io.StringIO):
    """As much of a terminal as a output uses: lines that scroll out at the top."""

    def __init__(self, height: int) -> None:
        super().__init__()
        self.height = height
        self.scrolled: list[str] = []
        self.lines = [""]
        self.row = self.column = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        for part in re.findall(r"\x1b\[\?25[lh]|\x1b\[\d*[FJKHm]|\r|\n|[^\x1b\r\n]+", text):
            self._obey(part)
        return len(text)

    def _obey(self, part: str) -> None:
        match part:
            case "\n":
                self.row, self.column = self.row + 1, 0
                if self.row == len(self.lines):
                    self.lines.append("")
                if self.row == self.height:
                    self.scrolled.append(self.lines.pop(0))
                    self.row -= 1
            case "\r":
                self.column = 0
            case "\x1b[K":
                self.lines[self.row] = self.lines[self.row][: self.column]
            case "\x1b[J":
                self.lines[self.row] = self.lines[self.row][: self.column]
                del self.lines[self.row + 1 :]
            case "\x1b[2J":
                self.lines = [""]
                self.row = self.column = 0
            case "\x1b[H" | "\x1b[?25l" | "\x1b[?25h":
                pass
            case _ if part.endswith("F"):
                self.row, self.column = max(self.row - int(part[2:-1]), 0), 0
            case _:
                line = self.lines[self.row].ljust(self.column)
                end = self.column + len(part)
                self.lines[self.row] = line[: self.column] + part + line[end:]
                self.column = end

    @property
    def text(self) -> list[str]:
        return [*self.scrolled, *self.lines]


def picture(*rows: str) -> list[Line]:
    return [*([(row, Style.PLAIN)] for row in ("id", *rows)), [], [("sum", Style.TITLE)]]


def sized(monkeypatch: pytest.MonkeyPatch, *, width: int, height: int) -> None:
    size = os.terminal_size((width, height))
    monkeypatch.setattr("shutil.get_terminal_size", lambda **_fallback: size)


def screen(monkeypatch: pytest.MonkeyPatch, *, height: int) -> tuple[TerminalOutput, Terminal]:
    sized(monkeypatch, width=40, height=height)
    terminal = Terminal(height)
    return TerminalOutput(terminal, colour=False), terminal


def shown(rows: Sequence[str]) -> list[str]:
    return ["", "   id", *(f"   {row}" for row in rows), "", "   sum"]


def test_a_table_stays_in_its_place_below_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    live, terminal = screen(monkeypatch, height=10)
    live.write(["one"])
    live.show(picture("a waits", "b waits"))
    live.show(picture("a runs, at last", "b"))
    live.write(["two", "three"])
    live.show(picture("a", "b"))
    assert terminal.text == ["one", "two", "three", *shown(["a", "b"])]


def test_what_is_said_scrolls_away_above_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    live, terminal = screen(monkeypatch, height=8)
    for word in ("one", "two", "three", "four"):
        live.write([word])
        live.show(picture("a", "b"))
    live.close()
    live.write(["the end"])
    told = ["one", "two", "three", "four", *shown(["a", "b"]), "the end", ""]
    assert terminal.text == told
    assert len(terminal.lines) == 8


def test_another_size_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    live, terminal = screen(monkeypatch, height=9)
    live.write(["one"])
    live.show(picture("a", "b"))
    sized(monkeypatch, width=30, height=7)
    live.show(picture("a", "b"))
    assert terminal.text == ["one", *shown(["a", "b"])]
    assert live.width == 26


def test_what_is_wider_than_the_terminal_breaks_between_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live, terminal = screen(monkeypatch, height=9)
    live.rows(["16 .ics   227 kB  for any program that reads iCalendar"])
    live.show(picture("a" * 50))
    assert terminal.text[:2] == [
        "   16 .ics   227 kB  for any program",
        "      that reads iCalendar",
    ]
    assert max(map(len, terminal.text)) < 40


def test_a_dumb_terminal_has_its_width_too(monkeypatch: pytest.MonkeyPatch) -> None:
    sized(monkeypatch, width=40, height=9)
    assert Output(Terminal(9)).width == 36
    assert Output(io.StringIO()).width == 77
    sized(monkeypatch, width=200, height=9)
    assert Output(Terminal(9)).width == 77


@pytest.mark.parametrize(
    ("height", "rows"),
    [
        (9, ["id", "a", "b", "c", "d", "", "sum"]),
        (7, ["id", "a", "b", "c", "d", "", "sum"]),
        (6, ["id", "a", "b", "... and 2 more", "", "sum"]),
        (4, ["id", "... and 4 more", "", "sum"]),
        (2, ["id", "... and 4 more"]),
    ],
)
def test_a_picture_is_cropped_to_what_fits(height: int, rows: list[str]) -> None:
    cut = cropped(picture("a", "b", "c", "d"), height)
    assert ["".join(text for text, _ in line) for line in cut] == rows
