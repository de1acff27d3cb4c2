"""`types`; and commands that need the types of jobs, and import none."""

import errno
import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from blackboard.cache import cache_folder
from blackboard.errors import BadInput
from tests.cli.command_line import CommandLine, blackboard

__all__ = ["blackboard"]

pytestmark = pytest.mark.of_one_store("types are those of the jobs, on any store")

JOBS = """
import sys
from dataclasses import dataclass
from pathlib import Path

from blackboard import handler

print("noise")
print("noise", file=sys.stderr)
with Path(__file__).with_name("imports").open("a") as counted:
    counted.write("x")


@dataclass
class Report:
    feeds: list[str]
    days: int = 30


@handler("report", every="2h", timeout=600, slots=1, params=Report)
def report(item, ctx): ...


@handler("quick", cron="0 3 * * *")
async def quick(item, ctx): ...
"""


@pytest.fixture(name="town")
def _town(blackboard: CommandLine) -> CommandLine:
    (blackboard.folder / "townjobs").mkdir()
    blackboard.write(JOBS, "townjobs/reports.py")
    blackboard.write('[board]\njobs = ["townjobs"]\n')
    blackboard("init")
    return blackboard


def imports(town: CommandLine) -> int:
    file = town.folder / "townjobs" / "imports"
    return len(file.read_text()) if file.exists() else 0


def test_types_have_their_defaults_params_and_place(town: CommandLine) -> None:
    place = town.folder / "townjobs" / "reports.py"
    line = 1 + JOBS.splitlines().index(
        '@handler("report", every="2h", timeout=600, slots=1, params=Report)'
    )
    assert town("types").out == textwrap.dedent(f"""\
        report
          runs      in a child process
          defaults  every = "2h", timeout = "10m", slots = 1
          params    feeds* (a list), days (a whole number) = 30
          defined   {place}:{line}

        quick
          runs      a coroutine
          defaults  cron = "0 3 * * *"
          defined   {place}:{line + 4}
        """)
    report, quick = town("types", "--json").json
    assert (report["type"], report["defaults"]["every"]) == ("report", "2h")
    assert quick["params"] is None
    (shipped,) = town("types", "--jobs", "shell", "--json").json
    assert shipped["type"] == "shell"


def test_threads_that_an_import_begins_are_not_waited_for(town: CommandLine) -> None:
    waits = "\nimport threading, time\nthreading.Thread(target=time.sleep, args=[3600]).start()\n"
    town.write(JOBS + waits, "townjobs/reports.py")
    town("add", "a", "--type", "quick")
    assert town.item("a").schedule == "cron 0 3 * * *"


def test_commands_use_the_types_and_print_nothing_of_what_an_import_prints(
    town: CommandLine,
) -> None:
    said = town("add", "a", "--type", "report", "--set", 'feeds=["x"]', "--json")
    assert said.err == ""
    assert said.json[0]["schedule"] == "every 2h"
    assert "there is no such field" in town.refused("edit", "a", "--set", "dais=3")
    assert "every 2 hours" in town("why", "a").out
    assert imports(town) == 1, "one process has imported them, for all commands"
    assert "townjobs" not in sys.modules


def _no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.parametrize("home", [_no_home, lambda: Path("relative")])
def test_who_has_no_home_has_no_cache(
    town: CommandLine, monkeypatch: pytest.MonkeyPatch, home: Callable[[], Path]
) -> None:
    monkeypatch.setattr("blackboard.handlers.manifest.cache_folder", cache_folder)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    assert "report" in town("types").out
    with pytest.raises(BadInput, match="XDG_CACHE_HOME: it is not set"):
        cache_folder()


def test_without_a_folder_for_temporary_files_the_types_are_not_known(
    town: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose files are read-only."""
    monkeypatch.setattr("tempfile.tempdir", str(town.folder / "nowhere"))
    words = "jobs: no temporary file can be made: No such file or directory (name a folder for it: "
    assert words in town.refused("types")
    assert f"warning: {words}" in town("show", "--json").err
    assert f"warning: {words}" in town("add", "a", "--type", "report", "--every", "1h").err


def test_a_process_that_the_system_refuses_is_said(
    town: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr("subprocess.run", refused)
    words = "this process may not have more processes (`ulimit -u`, or the limit of its container)"
    assert town.refused("types") == words


def test_a_change_of_the_jobs_is_seen(town: CommandLine) -> None:
    town("types")
    town.write(JOBS.replace("2h", "3h"), "townjobs/reports.py")
    assert "3h" in town("types").out
    town.write(
        "from blackboard import handler\n\n@handler('new')\ndef new(item, ctx): ...\n",
        "townjobs/new.py",
    )
    assert [one["type"] for one in town("types", "--json").json] == ["new", "report", "quick"]
    (town.folder / "townjobs" / "new.py").unlink()
    assert "new" not in town("types").out


def test_a_change_of_a_module_that_the_jobs_import_is_seen(
    town: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an application that declares its params beside its own code."""
    file = town.write('EVERY = "2h"\n', "elsewhere/shared_by_towns.py")
    town.write(
        "from blackboard import handler\nfrom shared_by_towns import EVERY\n\n"
        '@handler("shared", every=EVERY)\ndef shared(item, ctx): ...\n',
        "townjobs/shared.py",
    )
    monkeypatch.syspath_prepend(str(file.parent))
    assert 'every = "2h"' in town("types").out.partition("shared\n")[2]
    assert 'every = "2h"' in town("types").out.partition("shared\n")[2]
    counted = imports(town)
    file.write_text('EVERY = "30h"\n', encoding="utf-8")
    assert 'every = "30h"' in town("types").out.partition("shared\n")[2]
    assert imports(town) == counted + 1


def test_a_file_that_is_saved_while_the_jobs_are_imported_is_seen_by_the_next_command(
    town: CommandLine,
) -> None:
    saves = "\nfile = Path(__file__)\nfile.write_text(file.read_text().replace('2h', '3h'))\n"
    town.write(JOBS + saves, "townjobs/reports.py")
    assert "2h" in town("types").out
    assert "3h" in town("types").out


def test_commands_that_need_no_types_import_nothing(town: CommandLine) -> None:
    town.write("import time\n\ntime.sleep(3600)\n", "townjobs/slow.py")
    for args in (["show"], ["log"], ["status"], ["workers"], ["export"]):
        town(*args)
    assert imports(town) == 0


@pytest.mark.parametrize("text", ["import no_such_module\n", "import os\n\nos._exit(3)\n"])
def test_jobs_that_cannot_be_imported_are_a_warning_but_for_types(
    town: CommandLine, text: str
) -> None:
    town.write(text, "townjobs/bad.py")
    said = town("add", "a", "--type", "report", "--every", "1h")
    assert "warning: jobs" in said.err
    assert town.item("a").type == "report"
    refused = town.refused("types")
    assert "no_such_module" in refused or "ended with 3" in refused


def test_types_check_imports_here_and_shows_what_is_printed(town: CommandLine) -> None:
    said = town("types", "--check")
    assert said.out.startswith("noise\nreport\n")
    assert said.err == "noise\n"


def test_what_is_printed_while_types_are_imported_is_never_beside_the_json(
    town: CommandLine,
) -> None:
    said = town("types", "--check", "--json")
    assert [one["type"] for one in said.json] == ["report", "quick"]
    assert said.err == "noise\nnoise\n"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["types"], 0),
        (["types", "--check"], 0),
        (["apply", "--yes"], 0),
        (["worker", "--metrics", "x"], 2),
    ],
)
def test_settings_of_a_misspelt_type_are_a_warning(
    town: CommandLine, command: list[str], code: int
) -> None:
    lines = ["items = []", '[board]\njobs = ["townjobs"]', '[types.reprot]\nevery = "1h"']
    town.write("\n".join([*lines, "[jobs.qick]\nx = 1", "[types.of-another-worker]\nslots = 1"]))
    warned = [line for line in town(*command, code=code).err.splitlines() if "warning:" in line]
    assert warned == [
        "blackboard: warning: [types.reprot] is for no type here: did you mean 'report'?",
        "blackboard: warning: [jobs.qick] is for no type here: did you mean 'quick'?",
    ]
