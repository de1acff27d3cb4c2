"""Jobs import each other by their names, and a worker runs the code that it has read."""

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import threading
import zipapp
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import blackboard
from blackboard import board_worker
from blackboard.errors import BadInput
from blackboard.handlers import code
from blackboard.handlers.registry import load
from tests.support.patience import patience
from tests.support.processes import Site, Started, eventually, own_environ
from tests.support.processes import site as made
from tests.support.runs import PATIENCE

GOOD = """\
from blackboard import handler


@handler("feed-{}")
def feed(item, ctx): ...
"""
SHARED = """
import sys
print("shared is imported", file=sys.stderr)
conn = "one"
"""
FEEDS = """
import multiprocessing

from blackboard import handler
from cityjobs._shared import conn
from cityjobs.lib import helping
from common import shift

from . import _shared


def square(number):
    return number**2


@handler("plain")
def plain(item, ctx):
    import cityjobs._shared
    assert cityjobs._shared is _shared
    return [conn, helping.help(), shift(1)]


@handler("coroutine")
async def coroutine(item, ctx):
    return [conn, helping.help(), shift(1)]


@handler("pool")
def pool(item, ctx):
    with multiprocessing.get_context(item.params["way"]).Pool(2) as pool:
        return pool.map(square, [2, 3])
"""
HELPING = "def help():\n    return 'helped'\n"


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> Iterator[Site]:
    jobs = tmp_path / "cityjobs"
    for path, text in (
        (jobs / "_shared.py", SHARED),
        (jobs / "feeds.py", FEEDS),
        (jobs / "lib" / "helping.py", HELPING),
        (tmp_path / "common.py", "def shift(number):\n    return number + 1\n"),
        (tmp_path / "blackboard.toml", '[board]\njobs = ["cityjobs"]\n'),
    ):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    with made(tmp_path, str(tmp_path / "blackboard.db")) as site:
        yield site


def worker(place: Site, *args: str, environ: Mapping[str, str] | None = None) -> Started:
    return place.start("worker", "--init", "--cycle", "200ms", *args, environ=environ or {})


def result(place: Site, item_id: str) -> object:
    """Of one more run of an item, which a worker of the place runs."""
    with blackboard.open_blocking(store=place.store) as board:
        before = board.item(item_id).runs
        board.run(item_id)
        eventually(lambda: board.item(item_id).runs > before, f"{item_id} is run")
        (run,) = board.runs(item_id, limit=1)
    assert run.outcome == "ok", run.error
    return run.result


@pytest.mark.parametrize("environ", [{}, {"PYTHONPATH": "."}, {"PYTHONPATH": "cityjobs"}])
def test_a_folder_is_importable_under_its_own_name_and_loaded_once(
    place: Site, environ: dict[str, str]
) -> None:
    for kind in ("plain", "coroutine"):
        place.add(kind, type_=kind)
    started = worker(place, "--until-idle", environ=environ)
    assert started.ended() == 0
    results = [place.runs(kind)[0].result for kind in ("plain", "coroutine")]
    assert results == ['["one","helped",2]'] * 2
    assert started.text.count("shared is imported") == 1, "in the worker; a child has its own"


def test_multiprocessing_finds_the_modules_of_a_folder(place: Site) -> None:
    ways = ("fork", "spawn", "forkserver")
    for way in ways:
        place.add(way, type_="pool", way=way)
    assert worker(place, "--until-idle", "--slots", "1").ended() == 0
    assert {way: place.runs(way)[0].result for way in ways} == dict.fromkeys(ways, "[4,9]")


def test_an_importable_package_is_scanned_with_its_submodules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "from blackboard import handler\n\n@handler({!r})\nasync def run(item, ctx): ...\n"
    for name in ("__init__", "one", "_hidden", "inner/__init__", "inner/two"):
        file = tmp_path / "scanned_pkg" / f"{name}.py"
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text.format(name))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert sorted(load(["scanned_pkg"], tmp_path)) == [
        "__init__",
        "inner/__init__",
        "inner/two",
        "one",
    ]
    assert sorted(load(["scanned_pkg.inner"], tmp_path)) == ["inner/__init__", "inner/two"]


@pytest.mark.parametrize("package", [False, True])
def test_a_link_that_leads_back_to_a_folder_above_is_passed_over(
    tmp_path: Path, *, package: bool
) -> None:
    for folder in ("loopjobs", "otherjobs"):
        (tmp_path / folder).mkdir()
        if package:
            (tmp_path / folder / "__init__.py").touch()
    text = "from blackboard import handler\n\n@handler\ndef feed(item, ctx): ...\n"
    (tmp_path / "loopjobs" / "feeds.py").write_text(text)
    (tmp_path / "loopjobs" / "loop").symlink_to(".")
    (tmp_path / "loopjobs" / "other").symlink_to("../otherjobs")
    (tmp_path / "otherjobs" / "back").symlink_to("../loopjobs")
    assert [*load(["loopjobs"], tmp_path)] == ["feed"]
    assert not [one for one in code.changed() if one.startswith(str(tmp_path))]


def test_links_that_lead_nowhere_are_passed_over(tmp_path: Path) -> None:
    """An editor leaves some beside a file while it is edited."""
    text = "from blackboard import handler\n\n@handler\ndef feed(item, ctx): ...\n"
    (tmp_path / "jobs.py").write_text(text)
    for name, target in (("a", "b"), ("b", "a"), ("c.py", "c.py"), ("d.py", "gone")):
        (tmp_path / name).symlink_to(target)
    assert [*load(["jobs.py"], tmp_path)] == ["feed"]
    assert not [one for one in code.changed() if one.startswith(str(tmp_path))]


def test_a_clash_of_names_is_told_with_both_paths(tmp_path: Path) -> None:
    for folder in ("a/clashing", "b/clashing", "json"):
        (tmp_path / folder).mkdir(parents=True)
        text = f"from blackboard import handler\n\n@handler({folder!r})\nasync def f(i, c): ...\n"
        (tmp_path / folder / "one.py").write_text(text)
    with pytest.raises(BadInput) as two:
        load(["a/clashing", "b/clashing"], tmp_path)
    assert str(tmp_path / "a" / "clashing") in str(two.value)
    assert str(tmp_path / "b" / "clashing") in str(two.value)
    with pytest.raises(BadInput) as library:
        load(["json"], tmp_path)
    assert str(tmp_path / "json") in str(library.value)
    assert "json/__init__.py" in str(library.value)
    assert "rename" in library.value.remedy


def test_a_module_beside_that_is_imported_by_its_bare_name_gets_a_hint(tmp_path: Path) -> None:
    folder = tmp_path / "hinted_jobs"
    folder.mkdir()
    (folder / "_db.py").write_text("")
    (folder / "one.py").write_text("import _db\n")
    with pytest.raises(BadInput) as caught:
        load(["hinted_jobs"], tmp_path)
    assert caught.value.remedy == "write `from . import _db`, or `from hinted_jobs import _db`"


# ---- edits while a worker works


def edit(place: Site, name: str, was: str, text: str) -> None:
    file = place.folder / "cityjobs" / name
    assert was in file.read_text()
    file.write_text(file.read_text().replace(was, text))


def test_a_worker_goes_on_with_the_code_that_it_has_read(place: Site) -> None:
    """In its own process and in every child; it says once which files have changed."""
    for kind in ("plain", "coroutine"):
        place.add(kind, type_=kind)
    started = place.works(worker(place))
    eventually(lambda: place.is_ok("plain", "coroutine"), "both have run")
    edit(place, "_shared.py", "one", "two")
    (place.folder / "cityjobs" / "lib" / "helping.py").unlink()
    edit(place, "feeds.py", "return [conn, helping.help()", "return [(")
    eventually(lambda: "jobs changed" in started.text, "the change is told")
    assert [result(place, "plain") for _ in range(3)] == [["one", "helped", 2]] * 3
    assert result(place, "coroutine") == ["one", "helped", 2]
    for child in place.below(started):
        child.kill()
    assert result(place, "plain") == ["one", "helped", 2], "a new child has the old code"
    (line,) = [line for line in started.text.splitlines() if "jobs changed" in line]
    assert all(name in line for name in ("_shared.py", "helping.py", "feeds.py"))


def test_a_worker_goes_on_while_the_folder_of_its_jobs_is_away(place: Site) -> None:
    """As where a release is replaced."""
    for kind in ("plain", "coroutine"):
        place.add(kind, type_=kind)
    started = place.works(worker(place))
    eventually(lambda: place.is_ok("plain", "coroutine"), "both have run")
    shutil.rmtree(place.folder / "cityjobs")
    for child in place.below(started):
        child.kill()
    for kind in ("plain", "coroutine"):
        assert result(place, kind) == ["one", "helped", 2]


def test_a_worker_runs_the_code_that_it_has_read_of_a_package_that_python_finds(
    place: Site,
) -> None:
    """As that of a folder: also where it is away, and where a file is half saved."""
    (place.folder / "blackboard.toml").write_text('[board]\njobs = ["cityjobs.feeds"]\n')
    place.add("plain", type_="plain")
    started = place.works(worker(place))
    eventually(lambda: place.is_ok("plain"), "it has run")
    (place.folder / "cityjobs" / "feeds.py").write_text("half a file (")
    eventually(lambda: "feeds.py" in started.text, "the change is reported")
    for away in (False, True):
        if away:
            shutil.rmtree(place.folder / "cityjobs")
        for child in place.below(started):
            child.kill()
        assert result(place, "plain") == ["one", "helped", 2]


SINGLE = """
import beside
from blackboard import handler


@handler("plain")
def plain(item, ctx):
    return [1, beside.NUMBER]


@handler("coroutine")
async def coroutine(item, ctx):
    return [1, beside.NUMBER]
"""


def single(place: Site, *args: str) -> Started:
    """A worker whose jobs are a module that is a single file, and what lies beside that."""
    for file, text in (("single.py", SINGLE), ("beside.py", "NUMBER = 1\n")):
        (place.folder / file).write_text(text)
    (place.folder / "blackboard.toml").write_text('[board]\njobs = ["single"]\n')
    for kind in ("plain", "coroutine"):
        place.add(kind, type_=kind)
    started = place.works(worker(place, *args))
    eventually(lambda: place.is_ok("plain", "coroutine"), "both have run")
    return started


def test_of_a_module_that_is_a_single_file_a_new_child_imports_the_files_as_they_are(
    place: Site,
) -> None:
    """And an edit of this file is reported, but none of what lies beside it."""
    started = single(place)
    (place.folder / "beside.py").write_text("NUMBER = 20\n")
    (place.folder / "single.py").write_text(SINGLE.replace("[1,", "[10,"))
    eventually(lambda: "jobs changed" in started.text, "the change is reported")
    for child in place.below(started):
        child.kill()
    assert result(place, "plain") == [10, 20]
    assert result(place, "coroutine") == [1, 1], "its worker has imported it before"
    (line,) = [line for line in started.text.splitlines() if "jobs changed" in line]
    assert "single.py" in line
    assert "beside.py" not in line


def test_with_reload_a_worker_starts_again_after_an_edit_of_a_module_that_is_a_single_file(
    place: Site,
) -> None:
    started = single(place, "--reload")
    file = place.folder / "single.py"
    file.unlink()
    eventually(lambda: "single.py: No such file or directory" in started.text, "it is missed")
    file.write_text("half a file (")
    eventually(lambda: "was never closed" in started.text, "the mistake is told")
    assert result(place, "coroutine") == [1, 1]
    file.write_text(SINGLE.replace("[1,", "[10,"))
    eventually(lambda: started.text.count("worker started") == 2, "it works again")
    assert [result(place, kind) for kind in ("plain", "coroutine")] == [[10, 1]] * 2


def test_of_a_module_that_is_a_single_file_nothing_beside_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be more than can be read, and names that are no text."""
    monkeypatch.setattr(code, "MOST_FILES", 1)
    for file in ("one_of_many.py", "another.py", "third.py", "no text \udcff.py"):
        (tmp_path / file).write_text(GOOD)
    assert [*load(["one_of_many"], tmp_path)] == ["feed-{}"]
    (tmp_path / "another.py").write_text("")
    assert not [file for file in code.changed() if str(tmp_path) in file]
    assert not [file for file in code.code().files if str(tmp_path) in file]
    (tmp_path / "one_of_many.py").touch()
    assert not [file for file in code.changed() if str(tmp_path) in file]
    (tmp_path / "one_of_many.py").write_text("")
    assert [*load(["one_of_many"], tmp_path)] == ["feed-{}"], "it was imported before"
    assert [file for file in code.changed() if str(tmp_path) in file] == [
        str(tmp_path / "one_of_many.py")
    ]


def test_changes_are_found_while_threads_of_handlers_stand() -> None:
    """They may hold all threads that the loop has."""
    over = threading.Event()

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        standing = loop.run_in_executor(None, over.wait)
        try:
            await asyncio.wait_for(board_worker._changed_files(), PATIENCE)
            assert not standing.done()
        finally:
            over.set()
        await standing

    asyncio.run(story())


def test_jobs_that_are_loaded_while_changes_are_looked_for_do_not_disturb_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a program that opens another board beside its worker."""
    for number in range(3):
        (tmp_path / f"jobs{number}").mkdir()
        (tmp_path / f"jobs{number}" / "feeds.py").write_text(GOOD.format(number))
    load(["jobs0"], tmp_path)
    others, stamp = iter(("jobs1", "jobs2")), code._stamp

    def slow(file: str) -> tuple[int, int]:
        if other := next(others, None):
            load([other], tmp_path)
        return stamp(file)

    monkeypatch.setattr(code, "_stamp", slow)
    assert not [file for file in code.changed() if str(tmp_path) in file]


def test_with_reload_a_worker_starts_again_once_what_was_saved_is_whole(place: Site) -> None:
    place.add("plain", type_="plain")
    started = place.works(worker(place, "--reload"))
    assert result(place, "plain") == ["one", "helped", 2]
    edit(place, "feeds.py", "def square(number):", "def square(number")
    eventually(lambda: "was never closed" in started.text, "the mistake is told")
    assert result(place, "plain") == ["one", "helped", 2]
    edit(place, "_shared.py", '"one"', "no_such_name")
    edit(place, "feeds.py", "def square(number", "def square(number):")
    eventually(lambda: "no_such_name" in started.text, "what cannot be imported is told")
    edit(place, "_shared.py", "no_such_name", '"two"')
    eventually(lambda: started.text.count("worker started") == 2, "it works again")
    assert result(place, "plain") == ["two", "helped", 2]
    jobs, away = place.folder / "cityjobs", place.folder / "away"
    jobs.rename(away)
    eventually(lambda: "No such file or directory" in started.text, "the folder is missed")
    assert result(place, "plain") == ["two", "helped", 2]
    away.rename(jobs)
    edit(place, "_shared.py", '"two"', '"three"')
    eventually(lambda: started.text.count("worker started") == 3, "it works again")
    assert result(place, "plain") == ["three", "helped", 2]
    started.send(signal.SIGTERM)
    assert started.ended() == 0


def test_with_reload_a_worker_goes_on_while_the_file_of_its_jobs_is_away(place: Site) -> None:
    """As it is while an editor or git writes it anew."""
    file, away = place.folder / "alone.py", place.folder / "away"
    file.write_text("from blackboard import handler\n\n@handler\nasync def alone(item, ctx): ...\n")
    place.add("alone", type_="alone")
    started = place.works(worker(place, "--reload", "--jobs", file.name))
    file.rename(away)
    eventually(lambda: "alone.py: No such file or directory" in started.text, "it is missed")
    assert result(place, "alone") is None
    file.write_text(away.read_text().replace("...", "return 2"))
    eventually(lambda: started.text.count("worker started") == 2, "it works again")
    assert result(place, "alone") == 2
    started.send(signal.SIGTERM)
    assert started.ended() == 0


def releases(place: Site) -> Path:
    """The link to the first of two releases of jobs."""
    for number in (1, 2):
        jobs = place.folder / f"release{number}" / "work"
        jobs.mkdir(parents=True)
        function = f"async def linked(item, ctx): return {number}"
        # Of another size, as Python may find compiled what has the same size and time of change.
        text = "from blackboard import handler\n\n@handler\n" + function + number * "\n"
        for file in (jobs / "linked.py", jobs.parent / "single.py"):
            file.write_text(text)
        (jobs.parent / "b.toml").write_text('[board]\njobs = ["work"]\n')
        (jobs / "templates").mkdir()
        (jobs / "templates" / "model.py").write_text("class {{ name }}:")  # no module of the jobs
    current = place.folder / "current"
    current.symlink_to("release1")
    place.add("linked", type_="linked")
    return current


def lead(link: Path, target: str) -> None:
    """Leads a link to another place, in one step."""
    other = link.with_name("other")
    other.symlink_to(target)
    other.replace(link)


@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize(
    "option",
    [
        ["--jobs", "current/work"],
        ["--jobs", "~/current/work"],
        ["--config", "current/b.toml"],
        ["--jobs", "single"],
        ["--jobs", "work.linked"],
        ["--jobs", "current.work"],
    ],
    ids=" ".join,
)
def test_with_reload_a_worker_follows_a_link_to_another_release(
    place: Site, option: list[str], *, is_deleted: bool
) -> None:
    """As of `current -> releases/42`, which is replaced in one step."""
    current = releases(place)
    environ = {"PYTHONPATH": str(current), "HOME": str(place.folder)}
    started = place.works(
        worker(place, "--reload", *option, "--store", place.store, environ=environ)
    )
    assert result(place, "linked") == 1
    lead(current, "release2")
    if is_deleted:
        shutil.rmtree(place.folder / "release1")
    eventually(lambda: started.text.count("worker started") == 2, "it works again")
    assert result(place, "linked") == 2
    started.send(signal.SIGTERM)
    assert started.ended() == 0


@pytest.mark.parametrize(
    ("option", "file", "text", "problem"),
    [
        (["--config", "current/b.toml"], "b.toml", "[board", "mend the TOML"),
        (["--config", "current/b.toml"], "work", None, "jobs 'work': no such file, folder or"),
        (["--config", "current/b.toml"], "work/linked.py", "def (", "(linked.py, line 1)"),
        (["--jobs", "current/work"], "work/linked.py", "def (", "(linked.py, line 1)"),
        (["--jobs", "single"], "single.py", "def (", "(single.py, line 1)"),
        (["--jobs", "current/work"], "work/linked.py", f"x = {'-' * 200_000}1", "linked.py: Mem"),
    ],
)
def test_with_reload_a_worker_goes_on_while_another_release_cannot_be_loaded(
    place: Site, option: list[str], file: str, text: str | None, problem: str
) -> None:
    """As where the link is replaced before all is copied."""
    current = releases(place)
    part, away = place.folder / "release2" / file, place.folder / "away"
    part.rename(away)
    if text is not None:
        part.write_text(text)
    environ = {"PYTHONPATH": str(current)}
    started = place.works(
        worker(place, "--reload", *option, "--store", place.store, environ=environ)
    )
    assert result(place, "linked") == 1
    lead(current, "release2")
    eventually(lambda: problem in started.text, "the mistake is told")
    assert result(place, "linked") == 1
    away.rename(part)
    eventually(lambda: started.text.count("worker started") == 2, "it works again")
    assert result(place, "linked") == 2
    assert started.text.count(problem) == 1
    started.send(signal.SIGTERM)
    assert started.ended() == 0


@pytest.mark.parametrize("options", [["--once"], ["--until-idle"], ["--processes", "2"]])
def test_reload_is_for_one_worker_without_an_end(place: Site, options: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "blackboard", "worker", "--reload", *options],
        cwd=place.folder,
        env=own_environ(),
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(60),
    )
    assert done.returncode == 2
    assert done.stderr.startswith("blackboard: reload: it is for one worker")


# ---- a program that is an archive

PACKED = """
import asyncio
import subprocess
import sys

import blackboard
from blackboard.cli import main
from blackboard.runners.guard_process import Watch

import packed


async def guarded():
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    watch = Watch()
    watch.keep(child.pid, asyncio.get_running_loop().time())
    code = await asyncio.to_thread(child.wait)
    await watch.close()
    print(code)


async def works():
    async with blackboard.open("app.db", handlers=[packed.plain], create=True) as board:
        await board.add_many({"a": {}}, "plain")
        await board.worker().work("idle")
        print((await board.item("a")).result)


if __name__ == "__main__":
    if sys.argv[1:]:
        main()
    assert blackboard.__file__.startswith(__file__.removesuffix("__main__.py"))
    asyncio.run(guarded())
    asyncio.run(works())
"""
PACKED_JOBS = """
from blackboard import handler


@handler("plain")
def plain(item, ctx):
    return __file__
"""


def test_a_program_that_is_an_archive_has_child_processes_and_their_guard(tmp_path: Path) -> None:
    """And several workers, where its command line starts them. Its dependencies are elsewhere."""
    folder, archive = tmp_path / "program", tmp_path / "app.pyz"
    ours = Path(blackboard.__file__).parent
    shutil.copytree(ours, folder / "blackboard", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "__main__.py").write_text(PACKED)
    (folder / "packed.py").write_text(PACKED_JOBS)
    zipapp.create_archive(folder, archive)

    def called(*args: str) -> str:
        done = subprocess.run(
            [sys.executable, archive, *args],
            cwd=tmp_path,
            env=own_environ(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert called().split() == [str(-signal.SIGKILL), f"{archive}/packed.py"]
    called("run", "a", "--store", "app.db")
    on_board = ("--store", "app.db", "--jobs", "packed", "--until-idle")
    called("worker", *on_board, "--processes", "2")
    results = [run["result"] for run in json.loads(called("log", "--store", "app.db", "--json"))]
    assert results == [f"{archive}/packed.py"] * 2
