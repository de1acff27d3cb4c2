"""Declaring handlers, loading them from folders, files and modules, and what goes wrong then."""

import functools
import math
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import blackboard
from blackboard.errors import BadInput
from blackboard.handlers import registry
from blackboard.handlers.context import HandlerItem, expand, unescaped
from blackboard.handlers.handler import HandlerOptions, Source, handler, handlers_of
from blackboard.handlers.registry import find_handler, load, shipped
from blackboard.spec import RunOptions, Spec

HERE = Path(__file__).resolve().parents[1]
GOOD = "from blackboard import handler\n@handler({type!r})\ndef {name}(item, ctx):\n    return 1\n"


def good(type_: str, name: str = "run") -> str:
    return GOOD.format(type=type_, name=name)


def write(folder: Path, **files: str) -> Path:
    """Files by name, `__` standing for a slash: `a__b` is a/b.py."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def init(folder: Path, text: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text(text)


@pytest.fixture(autouse=True)
def imports_as_before() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


# --- the public names ---------------------------------------------------------------------------


def test_the_version_is_the_one_of_the_distribution() -> None:
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    assert blackboard.__version__ == project["version"]


def test_every_public_name_is_there_and_no_other() -> None:
    assert all(getattr(blackboard, name) is not None for name in blackboard.__all__)
    assert blackboard.Item is HandlerItem
    with pytest.raises(AttributeError, match="no attribute 'manager'"):
        blackboard.manager  # noqa: B018


def test_importing_the_package_imports_no_part_of_it() -> None:
    program = "import sys, blackboard; print([n for n in sys.modules if 'blackboard.' in n])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout == "[]\n"


# --- declaring ----------------------------------------------------------------------------------


OWN_OPTIONS = {"slots", "concurrency", "key", "fenced", "first", "resources"}


def test_a_handler_takes_the_fields_of_a_spec_and_its_own_options() -> None:
    assert set(HandlerOptions.__annotations__) == set(Spec.__struct_fields__) | OWN_OPTIONS
    assert set(RunOptions.__annotations__) == set(Spec.__struct_fields__) - {"params"}


def test_declaring_leaves_the_function_as_it_is() -> None:
    def run(item: Any, ctx: Any) -> str:
        return "as before"

    declared = handler("t", every="8h", timeout="10m", retries=2, fenced=True, slots=3)(run)
    assert declared is run
    assert run(None, None) == "as before"
    found = handlers_of(run)[0]
    assert (found.type, found.slots, found.fenced, found.is_async) == ("t", 3, True, False)
    assert found.spec == Spec(every="8h", timeout="10m", retries=2)


def test_a_coroutine_function_is_known_as_one() -> None:
    @handler("t")
    async def run(item: Any, ctx: Any) -> None: ...

    assert handlers_of(run)[0].is_async


def test_a_bare_handler_and_one_without_a_type_have_the_name_of_the_function() -> None:
    @handler
    def feed(item: Any, ctx: Any) -> str:
        return "as before"

    @handler(every="8h")
    async def page(item: Any, ctx: Any) -> None: ...

    assert feed(None, None) == "as before"
    assert [one.type for function in (feed, page) for one in handlers_of(function)] == [
        *("feed", "page")
    ]
    assert handlers_of(page)[0].spec == Spec(every="8h")


def test_a_bare_handler_above_what_is_no_handler_is_refused() -> None:
    with pytest.raises(BadInput, match="called with \\(item, ctx\\)"):
        handler(no_context)  # type: ignore[type-var]


def test_a_number_is_seconds() -> None:
    @handler("t", every=3600, timeout=600, backoff=0.5, jitter=timedelta(minutes=1), retries=2)
    def run(item: Any, ctx: Any) -> None: ...

    said = {"every": "1h", "timeout": "10m", "backoff": "500ms", "jitter": "1m", "retries": 2}
    assert handlers_of(run)[0].spec == Spec(**said)  # type: ignore[arg-type]


def test_an_option_that_there_is_not_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(BadInput, match="no option 'tiemout' \\(there is timeout\\)"):
        handler("t", tiemout="10m")(plain)  # type: ignore[call-overload]


def test_durations_and_times_may_be_objects() -> None:
    @handler("a", every=timedelta(hours=1, milliseconds=500), stale_after=timedelta(minutes=1))
    def often(item: Any, ctx: Any) -> None: ...

    @handler("b", at=datetime(2030, 1, 2, 3, 4, tzinfo=UTC))
    def once(item: Any, ctx: Any) -> None: ...

    assert handlers_of(often)[0].spec == Spec(every="1h500ms", stale_after="1m")
    assert handlers_of(once)[0].spec == Spec(at="2030-01-02T03:04:00+00:00")


def plain(item: Any, ctx: Any) -> None: ...


def no_context(item: Any) -> None: ...


def generator(item: Any, ctx: Any) -> Any:
    yield 1


async def async_generator(item: Any, ctx: Any) -> Any:
    yield 1


class Service:
    async def bound(self, item: Any, ctx: Any) -> None: ...

    def unbound(self, item: Any, ctx: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "said", "problem"),
    [
        (plain, {"every": "8 bananas"}, "every"),
        (plain, {"every": -8}, "every"),
        (plain, {"every": True}, "every: True is not text"),
        (plain, {"cron": 5}, "cron: 5 is not text"),
        (plain, {"tags": "eu"}, "tags: 'eu' is not a list of text"),
        (plain, {"timeout": math.nan}, "timeout"),
        (plain, {"cron": "61 * * * *"}, "cron"),
        (plain, {"every": "8h", "cron": "0 3 * * *"}, "cron"),
        (plain, {"cron": "0 3 * * *", "timezone": "Mars/Olympus"}, "Mars/Olympus"),
        (plain, {"timeout": "-1s"}, "timeout"),
        (plain, {"stale_after": "1s"}, "stale_after"),
        (plain, {"retries": "2"}, "retries: '2' is not a whole number"),
        (plain, {"retries": -1}, "retries"),
        (plain, {"retries": ""}, "retries: it is empty"),
        (plain, {"tags": ""}, "tags: it is empty"),
        (plain, {"missed": "some"}, "missed"),
        (plain, {"slots": 0}, "slots: 0 is too few"),
        (plain, {"slots": -(10**5_000)}, "slots: a value of the class int is too few"),
        (plain, {"concurrency": 10**5_000}, "concurrency: a value of the class int is not"),
        (plain, {"first": "soon"}, "first: "),
        (plain, {"slots": True}, "slots: True is not a number"),
        (plain, {"concurrency": 0}, "concurrency: 0"),
        (plain, {"concurrency": "2"}, "concurrency: '2'"),
        (plain, {"key": ""}, "key: ''"),
        (plain, {"key": 7}, "key: 7"),
        (plain, {"fenced": "yes"}, "fenced"),
        (no_context, {}, "cannot be called with (item, ctx)"),
        (generator, {}, "generator"),
        (async_generator, {}, "generator"),
        (print, {}, "not a function"),
        (int, {}, "not a function"),
        (Service().bound, {}, "methods cannot be handlers"),
        (Service.unbound, {}, "methods cannot be handlers"),
        (functools.partial(no_context), {}, "above a function that calls it"),
    ],
)
def test_a_bad_declaration_is_refused_naming_the_handler(
    function: Callable[..., Any], said: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BadInput) as refused:
        handler("feeds", **said)(function)
    assert str(refused.value).startswith("handler 'feeds'")
    assert problem in str(refused.value)
    if function is plain:
        assert f"{__file__}:" in str(refused.value)


@pytest.mark.parametrize("type_", ["", "a,b", "a\nb", None, 3])
def test_a_type_is_printable_text_without_commas(type_: Any) -> None:
    with pytest.raises(BadInput, match="a type is printable"):
        handler(type_)(plain)


# --- loading ------------------------------------------------------------------------------------


def test_a_folder_gives_every_module_and_package_in_it_but_the_hidden(tmp_path: Path) -> None:
    jobs = write(tmp_path / "jobs", one=good("one"), two=good("two"), three__inner=good("inner"))
    init(jobs / "pack", good("pack") + "from .deep import DEEP\n")
    write(jobs, pack__deep="DEEP = 1\n", _private="raise SystemExit\n")
    write(jobs / ".hidden", anything="raise SystemExit\n")
    (jobs / "notes.txt").write_text("not Python")
    found = load(["jobs"], tmp_path)
    assert sorted(found) == ["one", "pack", "two"]
    assert len(found) == 3
    assert found["one"].function(None, None) == 1
    assert found["one"].source == Source(str(jobs), "one")


def test_modules_of_a_folder_import_each_other_relatively(tmp_path: Path) -> None:
    write(
        tmp_path / "jobs",
        a="from blackboard import handler\nfrom ._shared import value\n"
        "@handler('a')\ndef run(item, ctx):\n    return value\n",
        b="from .a import run\n",
        _shared="value = 42\n",
    )
    found = load(["jobs"], tmp_path)
    assert list(found) == ["a"]
    assert found["a"].function(None, None) == 42


def test_a_folders_own_init_is_part_of_it(tmp_path: Path) -> None:
    init(tmp_path / "jobs", good("in-init"))
    found = load(["jobs"], tmp_path)
    assert list(found) == ["in-init"]
    assert find_handler(found["in-init"].source, "in-init") == found["in-init"]


def test_two_folders_of_one_name_do_not_meet(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name / "jobs.d", run=good(name))
    before = set(sys.modules)
    found = load(["a/jobs.d", "b/jobs.d"], tmp_path)
    assert sorted(found) == ["a", "b"]
    new = set(sys.modules) - before
    assert len(new) == 4
    assert not any(name.partition(".")[0] == "jobs" for name in new)


def test_a_file_is_loaded_alone_and_once(tmp_path: Path) -> None:
    write(tmp_path / "jobs", one=good("one"), bad="raise SystemExit\n")
    write(tmp_path / "jobs", **{"with-dash": good("dash")})
    found = load(["jobs/one.py", str(tmp_path / "jobs/one.py"), "jobs/with-dash.py"], tmp_path)
    assert sorted(found) == ["dash", "one"]


def test_a_module_is_found_on_the_path_or_beside_the_settings(tmp_path: Path) -> None:
    init(tmp_path / "my_package_of_jobs")
    write(tmp_path, my_package_of_jobs__feeds=good("feeds"))
    found = load(["my_package_of_jobs.feeds"], tmp_path)
    assert found["feeds"].source == Source("", "my_package_of_jobs.feeds")
    assert sys.path[-1] == str(tmp_path)


def test_what_a_module_imports_counts_as_its_own(tmp_path: Path) -> None:
    init(tmp_path / "another_package")
    imports = "from another_package.impl import run\n"
    write(tmp_path, another_package__impl=good("impl"), another_package__jobs=imports)
    assert list(load(["another_package.jobs"], tmp_path)) == ["impl"]


def test_a_wrapper_around_a_handler_is_what_is_called(tmp_path: Path) -> None:
    write(
        tmp_path,
        wrapped="import functools\nfrom blackboard import handler\n"
        "def twice(f):\n    @functools.wraps(f)\n"
        "    def g(item, ctx):\n        return 2 * f(item, ctx)\n    return g\n"
        "@twice\n@handler('w', every='1h')\ndef run(item, ctx):\n    return 21\n",
    )
    assert load(["wrapped.py"], tmp_path)["w"].function(None, None) == 42


HIDING = (
    "import functools\nfrom blackboard import handler\n"
    "def deco(f):\n    @functools.wraps(f)\n    def g(*given):\n        return f(*given)\n"
    "    return g\n{}\nasync def run(item, ctx): ...\n"
)


@pytest.mark.parametrize("above", ["@deco\n@handler('w')", "@handler('w')\n@deco"])
def test_a_decorator_that_hides_a_coroutine_function_is_refused(tmp_path: Path, above: str) -> None:
    write(tmp_path, hidden=HIDING.format(above))
    with pytest.raises(BadInput, match=r"hidden\.py:\d.*a decorator hides its `async def`"):
        load(["hidden.py"], tmp_path)


def test_one_function_may_run_two_types(tmp_path: Path) -> None:
    write(tmp_path, both=good("x").replace("@handler", "@handler('y')\n@handler"))
    assert sorted(load(["both.py"], tmp_path)) == ["x", "y"]


def test_a_shipped_name_wins_over_a_folder_that_happens_to_lie_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "shipped", weather=good("weather"), _hidden=good("hidden"))
    init(tmp_path / "shipped/tides", good("tides"))
    write(tmp_path / "weather", mine=good("mine"))
    monkeypatch.setattr(registry, "_shipped_folder", lambda: tmp_path / "shipped")
    assert shipped() == ("tides", "weather")
    assert sorted(load(["weather", "tides"], tmp_path)) == ["tides", "weather"]
    assert list(load(["./weather"], tmp_path)) == ["mine"]


def test_shipped_jobs_are_found_without_importing_them() -> None:
    before = set(sys.modules)
    names = shipped()
    assert set(sys.modules) == before
    folder = registry._shipped_folder()
    assert (folder is None) == (names == ())
    assert folder is None or folder.name in {"jobs", "_jobs"}


# --- what goes wrong ----------------------------------------------------------------------------

SILENT = "class Silent(Exception):\n    def __str__(self):\n        raise OSError\n\n"
"""An exception that has no message."""


@pytest.mark.parametrize(
    ("files", "entry", "said"),
    [
        ({}, "./nowhere", "no such file or folder"),
        ({}, "nowhere.py", "no such file or folder"),
        ({}, "no_such_module_anywhere", "a module that can be imported"),
        ({}, "no_such_package.jobs", "a module that can be imported"),
        ({}, "os.no_such_part", "a module that can be imported"),
        ({}, "not a name", "a module that can be imported"),
        ({}, "", "is empty"),
        ({"empty": ""}, "empty.py", "there is no handler in it"),
        ({"bad": "def f(:\n"}, "bad.py", "SyntaxError: invalid syntax ({file}:1)"),
        ({"bad": "x = 1\nimport no_such_thing\n"}, "bad.py", "No module named 'no_such_thing'"),
        ({"bad": "x = 1\nimport no_such_thing\n"}, "bad.py", "({file}:2)"),
        ({"bad": "\n\n1 / 0\n"}, "bad.py", "ZeroDivisionError: division by zero ({file}:3)"),
        ({"bad": "raise SystemExit(1)\n"}, "bad.py", "SystemExit: 1"),
        ({"bad": "raise GeneratorExit\n"}, "bad.py", "GeneratorExit ({file}:1)"),
        ({"bad": f"{SILENT}raise Silent\n"}, "bad.py", "Silent: (its message raised OSError)"),
        ({"silent_module": f"{SILENT}raise Silent\n"}, "silent_module.x", "raised OSError)"),
        ({"bad": "import no_such_thing\n"}, ".", "cannot import {folder}/bad.py: "),
        (
            {"bad": "from blackboard import BadInput\nraise BadInput('jobs', 'x is missing', 'y')"},
            ".",
            "jobs '.': x is missing (y)",
        ),
        ({"bad": good("t").replace("'t'", "'t', every='x'")}, "bad.py", "handler 't' ({file}:2)"),
        ({"broken_module": "1 / 0\n"}, "broken_module", "ZeroDivisionError"),
        ({"a": good("t"), "b": good("t")}, ".", "the type 't' has two handlers"),
        ({"a": good("t"), "b": good("t")}, ".", "a.py:2 and {folder}/b.py:2"),
    ],
)
def test_a_bad_entry_is_refused_naming_it_and_what_failed(
    tmp_path: Path, files: dict[str, str], entry: str, said: str
) -> None:
    write(tmp_path, **files)
    with pytest.raises(BadInput) as refused:
        load([entry], tmp_path)
    assert refused.value.exit_code == 2
    assert str(refused.value).startswith("jobs")
    assert said.format(file=tmp_path / "bad.py", folder=tmp_path) in str(refused.value)
    assert "two handlers" in said or "{folder}" in said or repr(entry) in str(refused.value)


def test_a_file_with_a_nul_is_named_and_no_line_of_it(tmp_path: Path) -> None:
    """Python says neither."""
    (tmp_path / "bad.py").write_text("x = '\0'\n")
    with pytest.raises(BadInput, match=r"bad\.py: \w+Error: .*null bytes") as refused:
        load(["bad.py"], tmp_path)
    assert "None" not in str(refused.value)


@pytest.mark.parametrize("name", ["notes.txt", "a.b.py", "data"])
def test_a_file_that_is_no_module_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(good("t"))
    with pytest.raises(BadInput, match="is not a Python file"):
        load([name], tmp_path)


@pytest.mark.parametrize("place", ["j\udcff/a", "j/a\udcff"])
def test_a_path_that_is_no_utf_8_is_refused(tmp_path: Path, place: str) -> None:
    """Child processes get the files of the jobs by their paths, as text."""
    file = tmp_path / f"{place}.py"
    file.parent.mkdir()
    file.write_text(GOOD.format(type="t", name="f"), encoding="utf-8")
    with pytest.raises(BadInput, match=r"\\udcff.*is not UTF-8 text \(rename what is not\)"):
        load([str(file.parent)], tmp_path)


def test_a_package_whose_import_fails_is_told_apart_from_one_that_is_missing(
    tmp_path: Path,
) -> None:
    init(tmp_path / "half_a_package", "import no_such_thing\n")
    with pytest.raises(BadInput, match=r"cannot be imported: ModuleNotFoundError.*no_such_thing"):
        load(["half_a_package.jobs"], tmp_path)


MADE_HERE = """
import sys
from importlib.util import module_from_spec, spec_from_file_location

import blackboard
from blackboard.handlers.registry import check_importable, registry_of


def made(name, path):
    spec = spec_from_file_location(name, path)
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Old:
    def find_module(self, name, path=None):
        return None


sys.meta_path.insert(0, Old())  # Python passes over finders without `find_spec`
for name in ("plugins.one", "plugin", "json"):
    try:
        check_importable(registry_of([made(name, "a_file.py").own])["own"])
    except blackboard.BadInput as problem:
        print(problem)
"""


def test_a_module_that_no_child_process_finds_is_refused(tmp_path: Path) -> None:
    """One that its program has put into `sys.modules`, in the place of another one, too."""
    write(tmp_path, a_file=good("own", name="own"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(
        [sys.executable, "-c", MADE_HERE],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.count("a child process cannot import it: no import finds the module") == 3


def test_a_folder_whose_init_failed_is_tried_afresh(tmp_path: Path) -> None:
    init(tmp_path / "jobs", "raise LookupError('not yet')\n")
    with pytest.raises(BadInput, match="LookupError: not yet"):
        load(["jobs"], tmp_path)
    init(tmp_path / "jobs", good("now"))
    assert list(load(["jobs"], tmp_path)) == ["now"]


def test_two_entries_with_one_type_are_refused(tmp_path: Path) -> None:
    write(tmp_path, a__x=good("t"), b__x=good("t"))
    with pytest.raises(BadInput, match=r"/a/x\.py:2 and .*/b/x\.py:2"):
        load(["a", "b"], tmp_path)


def test_a_file_that_is_loaded_twice_is_refused_with_the_remedy(tmp_path: Path) -> None:
    write(tmp_path, loaded_twice=good("t"))
    with pytest.raises(BadInput, match=r"loaded_twice\.py:2, which was imported .* name it once"):
        load(["loaded_twice.py", "loaded_twice"], tmp_path)


def test_no_entries_are_an_empty_registry(tmp_path: Path) -> None:
    assert dict(load([], tmp_path)) == {}


# --- params -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "expanded"),
    [
        ({}, {}),
        ({"a": "${KEY}"}, {"a": "secret"}),
        ({"a": "x${KEY}y${_K2}"}, {"a": "xsecrety"}),
        (
            {"a": ["${KEY}", {"b": "${KEY}"}, 3, None, True]},
            {"a": ["secret", {"b": "secret"}, 3, None, True]},
        ),
        ({"${KEY}": 1}, {"${KEY}": 1}),
        ({"a": "$${KEY}"}, {"a": "${KEY}"}),
        ({"a": "$$${KEY}"}, {"a": "$${KEY}"}),
        ({"a": "$KEY ${} ${1} ${a b} $ {KEY}"}, {"a": "$KEY ${} ${1} ${a b} $ {KEY}"}),
        ({"a": "${NESTED}"}, {"a": "${KEY}"}),
    ],
)
def test_variables_are_replaced_once_wherever_a_string_is(
    params: dict[str, Any], expanded: dict[str, Any]
) -> None:
    environ = {"KEY": "secret", "_K2": "", "NESTED": "${KEY}"}
    before = repr(params)
    assert expand(params, environ) == expanded
    assert repr(params) == before


@pytest.mark.parametrize("text", ["", "$", "${", "$${KEY}", "$$${KEY}", "$${$${KEY", "x$${ $${}"])
def test_a_text_without_variables_is_unescaped_as_it_is_expanded(text: str) -> None:
    assert {"a": unescaped(text)} == expand({"a": text}, {})


def test_what_is_only_unescaped_keeps_its_variables() -> None:
    assert unescaped("${KEY} $${KEY} ${KEY}") == "${KEY} ${KEY} ${KEY}"


@pytest.mark.parametrize(
    ("params", "where"),
    [({"a": "${MISSING}"}, "params.a"), ({"a": [{"b": "${KEY} ${MISSING}"}]}, "params.a[0].b")],
)
def test_a_missing_variable_is_named_and_no_value_told(params: dict[str, Any], where: str) -> None:
    with pytest.raises(BadInput) as refused:
        expand(params, {"KEY": "secret"})
    assert refused.value.field == where
    assert "MISSING is not set" in str(refused.value)
    assert "secret" not in str(refused.value)
