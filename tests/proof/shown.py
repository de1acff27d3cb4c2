"""Which tests show which cases, and on which stores: as pytest collects them, and as a table.

A test shows a case if it has its mark, on the stores on which it runs: those of its parameter, the
emulator if it uses that, else the one that the mark names (`on="sqlite"`). Collecting takes some
seconds, in a process of its own; no test runs.
"""

import io
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.proof.cases import CASES, EVERY_STORE, Case

ROOT = Path(__file__).resolve().parents[2]
PARAMETERS = ("store", "lasting_store")
LAST = 2_000
"""The last characters of pytest's output that are shown when it could not collect."""


@dataclass(frozen=True, slots=True, order=True)
class Shown:
    """One test of a case."""

    case: str
    test: str
    """The test as pytest names it, without its parameters."""
    stores: tuple[str, ...] = ()
    """The stores on which it runs; empty if it needs none."""


def shown() -> list[Shown]:
    """All tests that have the mark of a case, case by case."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST")}
    collected = subprocess.run(
        [sys.executable, "-m", "tests.proof.shown"],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [
        Shown(one["case"], one["test"], tuple(one["stores"]))
        for one in json.loads(collected.stdout)
    ]


def problems(found: Iterable[Shown], cases: Mapping[str, Case] = CASES) -> list[str]:
    """Cases that no test shows, or not on every store; and marks of cases that do not exist."""
    tests, stores = defaultdict[str, list[str]](list), defaultdict[str, set[str]](set)
    for one in found:
        tests[one.case].append(one.test)
        stores[one.case].update(one.stores)
    told = [f"{name} is no case: {tests[name][0]}" for name in sorted(tests.keys() - cases.keys())]
    for name, case in cases.items():
        if case.absent:
            told += [f"{name} has tests, so there is such a part"] * (name in tests)
        elif name not in tests:
            told.append(f"{name} has no test")
        elif missing := set(case.stores) - stores[name]:
            told.append(f"{name} is not shown on {', '.join(sorted(missing))}")
        if set(case.stores) != set(EVERY_STORE) and not case.why:
            told.append(f"{name} says no reason for fewer stores")
    return told


def cases_table(found: Iterable[Shown] | None = None) -> str:
    """A table in Markdown, with a row for each test; the first of a case has what must hold."""
    tests = defaultdict[str, list[Shown]](list)
    for one in sorted(shown() if found is None else found):
        tests[one.case].append(one)
    lines = ["| case | what has to hold | test | stores |", "|---|---|---|---|"]
    for name, case in CASES.items():
        says = _says(case)
        for one in tests[name] or [Shown(name, "")]:
            test = f"`{one.test.removeprefix('tests/')}`" if one.test else "none"
            lines.append(f"| {name} | {says} | {test} | {', '.join(one.stores) or '-'} |")
            says = ""
    return "\n".join(lines) + "\n"


def _says(case: Case) -> str:
    after = f" (after {case.after})" if case.after else ""
    if case.absent:
        return f"{case.says}{after} Not applicable yet: {case.why}."
    fewer = f" On {', '.join(case.stores) or 'none'}: {case.why}." if case.why else ""
    return f"{case.says}{after}{fewer}"


class Collected:
    """A plugin of pytest that notes the marks of collected tests."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], set[str]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for mark in item.iter_markers("case"):
                for case in mark.args:
                    test = item.nodeid.partition("[")[0]
                    stores = self.found.setdefault((case, test), set())
                    stores.update(_stores(item, mark.kwargs.get("on")))


def _stores(item: pytest.Item, on: str | None) -> list[str]:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    named = [parameters[one] for one in PARAMETERS if one in parameters]
    if not named and "azurite" in getattr(item, "fixturenames", ()):
        named = ["azurite"]
    return [on] if on else named


def marked_files() -> list[str]:
    """The test files with a mark of a case."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(file) for file in files if "mark.case(" in file.read_text(encoding="utf-8")]


def main() -> int:
    """Print the collected tests as JSON; or pytest's output, if it could not collect."""
    collected, said = Collected(), io.StringIO()
    with redirect_stdout(said):
        code = pytest.main(
            ["--collect-only", "-qq", "-p", "no:cacheprovider", *marked_files()],
            plugins=[collected],
        )
    if code:
        sys.stderr.write(said.getvalue()[-LAST:])
        return int(code)
    found = [
        Shown(case, test, tuple(store for store in EVERY_STORE if store in stores))
        for (case, test), stores in collected.found.items()
    ]
    sys.stdout.write(json.dumps([asdict(one) for one in found]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
