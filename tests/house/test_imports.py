"""Who may import whom, and who alone may import what: the structure of the package, as tables.

A module may import from its own layer and from those before it. A module that stands in no layer
fails the test: whoever adds one decides where it belongs.
"""

import ast
import subprocess
import sys
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LAYERS = {
    "records, errors, time": "model errors clock phrases cache tasks host_names http_messages",
    "schedules": "schedule schedule.*",
    "what a run is run with, and which items are meant": "spec patterns command_names crontab",
    "rules: they decide": "rules rules.*",
    "the contracts of a store and of a bus": "table bus",
    "the protocol, above the contract": ("protocol protocol.*"),
    "handlers, how they are called; stores": (
        "blackboard inputs named_files endpoint handlers handlers.* runners runners.* records "
        "events emitter tables tables.* stores"
    ),
    "the worker, and those who look at a board": (
        "worker worker.* sharing sharing.* doctor doctor.* why verbs cost notify notify.*"
    ),
    "what is read of a board, and how it is shown": "display display.* metrics metrics.*",
    "the settings file": "settings",
    "the pages": "web web.*",
    "the front door": "location board_worker assembly board blocking",
    "how fast a store is": "bench bench_handlers",
    "the worker in a simulated world": "simulator simulator.*",
    "the demo": "demo demo.*",
    "for people": "cli cli.* testing __main__",
}

ONLY_IN = {
    "apscheduler": "worker.wake",
    "azure": "tables.azure tables.azure_*",
    "click": "cli cli.*",
    "opentelemetry": "runners.tracing",
    "prometheus_client": "metrics metrics.worker metrics.board",
    "pytest": "testing",
    "redis": "sharing.redis_bus",
    "rich": "cli.render",
    "sqlite3": "tables.sqlite tables.sqlite_*",
    "random": "clock",
    "secrets": "clock",
    "time": "clock runners.guard runners.leftovers",  # a guard runs alone; a zone is no clock
    "multiprocessing": "",
    "pickle": "",
    "jobs": "",
    "tests": "",
}

PURE = {"collections", "dataclasses", "datetime", "enum", "hashlib", "itertools", "math"}
PURE |= {"msgspec", "typing", "zlib"}
"""All that rules import from elsewhere: no clock, no chance, no I/O, no logging; of msgspec its
structs, and no JSON."""

CLOCK_CALLS = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today"}

HEAVY = {
    *("apscheduler", "azure", "dateutil", "httpx2", "icalendar", "opentelemetry"),
    *("prometheus_client", "redis", "rich"),
}
"""What `blackboard --help` does not wait for."""


def name_of(path: Path, top: Path) -> str:
    """As in LAYERS: `rules.claims`, and `rules` for its `__init__`; the package is `blackboard`."""
    parts = path.relative_to(top).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__") or top.name


@cache
def parsed(folder: str) -> dict[str, ast.Module]:
    top = ROOT / folder
    return {name_of(path, top): ast.parse(path.read_text()) for path in sorted(top.rglob("*.py"))}


def modules() -> dict[str, ast.Module]:
    return parsed("blackboard")


def matches(name: str, patterns: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns.split())


def layers_of(name: str) -> list[int]:
    return [n for n, patterns in enumerate(LAYERS.values()) if matches(name, patterns)]


@cache
def imports(tree: ast.Module) -> frozenset[str]:
    """Full names of what is imported, wherever in the file, and for types alone too; relative
    imports are left out.
    """
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def own_imports(tree: ast.Module) -> set[str]:
    """The modules of the package among them. `from package.module import name` is `module`."""
    found = {name for name in imports(tree) if name.partition(".")[0] == "blackboard"}
    return {module_in(name.removeprefix("blackboard").lstrip(".")) for name in found}


def module_in(name: str) -> str:
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return name or "blackboard"


def foreign(tree: ast.Module) -> set[str]:
    return {name.partition(".")[0] for name in imports(tree)} - {"blackboard"}


def dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(value, attribute):
            return f"{dotted(value)}.{attribute}"
        case _:
            return ""


def test_the_package_was_found() -> None:
    assert {"blackboard", "protocol.board_table", "rules.due", "cli"} <= modules().keys()
    assert {"protocol.board_table", "protocol.keys", "table"} <= own_imports(
        modules()["protocol.claims"]
    )
    assert foreign(modules()["cli.render"]) >= {"rich"}


def test_every_module_stands_in_one_layer() -> None:
    assert [name for name in modules() if len(layers_of(name)) != 1] == []


def test_a_module_imports_from_its_own_layer_and_those_before() -> None:
    """But for the package itself, which loads nothing before a name of it is used."""
    assert [
        f"{name} imports {other}"
        for name, tree in modules().items()
        if name != "blackboard"
        for other in sorted(own_imports(tree))
        if max(layers_of(other)) > min(layers_of(name))
    ] == []


@pytest.mark.parametrize(("package", "allowed"), ONLY_IN.items())
def test_some_packages_are_imported_in_their_place_alone(package: str, allowed: str) -> None:
    importers = [name for name, tree in modules().items() if package in foreign(tree)]
    assert [name for name in importers if not matches(name, allowed)] == []


def test_rules_are_pure() -> None:
    rules = {name: tree for name, tree in modules().items() if matches(name, "rules rules.*")}
    assert [name for name, tree in rules.items() if foreign(tree) - PURE] == []
    assert [name for name, tree in rules.items() if "clock" in own_imports(tree)] == []
    of_msgspec = {one for tree in rules.values() for one in imports(tree) if "msgspec" in one}
    assert of_msgspec == {"msgspec.Struct"}


def test_the_clock_is_handed_in() -> None:
    assert [
        f"{name}:{node.lineno}"
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if name != "clock"
        and isinstance(node, ast.Call)
        and ".".join(dotted(node.func).split(".")[-2:]) in CLOCK_CALLS
    ] == []


def test_records_are_replaced_by_the_function_of_the_model() -> None:
    """That of dataclasses raises TypeError for a struct, and mypy lets it pass."""
    used = [
        name
        for name, tree in modules().items()
        if "dataclasses.replace" in imports(tree)
        or any(
            dotted(node) == "dataclasses.replace"
            for node in ast.walk(tree)
            if isinstance(node, ast.expr)
        )
    ]
    assert used == ["model"]


def test_the_package_imports_itself_by_full_names() -> None:
    """Or these tests would not see it."""
    assert [
        f"{name}:{node.lineno}"
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ] == []


def test_jobs_import_what_handlers_are_given_and_each_other_relatively() -> None:
    """Relatively, because a wheel has no package called `jobs`."""
    handlers = max(layers_of("handlers"))
    assert [name for name, tree in parsed("jobs").items() if "jobs" in foreign(tree)] == []
    assert [
        f"{name} imports {other}"
        for name, tree in parsed("jobs").items()
        for other in sorted(own_imports(tree))
        if max(layers_of(other)) > handlers
    ] == []


def test_the_command_line_loads_nothing_heavy() -> None:
    code = "import sys, blackboard.cli; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "click" in loaded
    assert not loaded & HEAVY
