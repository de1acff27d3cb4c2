"""The command of the proof writes what it ran into the page, and nothing of what failed; what the
page names is there.
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof import __main__ as command
from tests.proof import parts
from tests.proof.model import judges
from tests.proof.model.conditions import Conditions
from tests.proof.origin import ROOT
from tests.proof.page import blocks, with_blocks
from tests.proof.parts import PARTS, Left, Part
from tests.proof.planted.planted import PLANTED
from tests.proof.simulator.worlds import run_worlds
from tests.proof.tables import WENT_WRONG, chosen, share, table
from tests.support.pages import page, words

RELIABILITY = page("reliability.md")
SHORT = 6
"""A seed whose worlds are among the shortest."""
WRITTEN = """\
# Page

By hand.

<!-- figures: worlds -->

old

<!-- end -->

By hand, too.
"""


# ---- what the page names


def promised(column: str) -> list[str]:
    """What stands in a column of the table of promises."""
    found = RELIABILITY.table("promise", "simulator")
    place = found.head.index(column)
    return [name for row in found.rows for name in row[place].split(", ") if name not in {"", "-"}]


def test_a_promise_is_one_of_those_that_are_listed() -> None:
    listed = [line[2:] for line in RELIABILITY.text.splitlines() if line.startswith("- ")]
    assert [row[0] for row in RELIABILITY.table("promise", "simulator").rows] == listed


def test_oracles_that_are_named_are_there_and_a_planted_bug_shows_each() -> None:
    files = [*(ROOT / "blackboard" / "simulator").rglob("*.py")]
    files += (ROOT / "tests" / "support").glob("simulated_*.py")
    text = "\n".join(path.read_text() for path in files)
    kinds = set(promised("simulator"))
    assert len(kinds) > 20
    assert [kind for kind in kinds if f'"{kind}"' not in text] == []
    assert kinds <= {kind for bug in PLANTED for kind in bug.kinds}


def test_invariants_conditions_and_tests_that_are_named_are_there() -> None:
    invariants = {text for text in vars(judges).values() if isinstance(text, str)}
    assert set(promised("model")) <= {text.partition(":")[0] for text in invariants}
    assert "fourteen conditions" in RELIABILITY.prose
    assert len(Conditions._fields) == 14
    there = {path.name for path in (ROOT / "tests" / "proof" / "chaos").iterdir()}
    named = [name for cell in promised("chaos") for name in words(cell)]
    assert named
    assert set(named) <= there


def test_what_went_wrong_in_the_worlds_is_said_in_words() -> None:
    rows = RELIABILITY.table("what went wrong", "times").rows
    assert {row[0] for row in rows} <= set(WENT_WRONG.values())


def test_tests_that_bugs_are_shown_by_are_there() -> None:
    shown = [words(row[1])[0] for row in RELIABILITY.table("what broke").rows]
    assert len(shown) > 60
    files = (ROOT / "tests").rglob("test_*.py")
    there = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())}
    assert set(shown) - there == set()


def test_the_page_lists_every_planted_bug_in_its_order() -> None:
    listed = [tuple(row[:2]) for row in RELIABILITY.table("bug", "planted").rows]
    assert listed == [(bug.name, bug.without) for bug in PLANTED]


def test_programs_and_parts_that_are_named_are_there() -> None:
    (shell,) = [one for one in RELIABILITY.paragraphs if one.startswith("```sh")]
    modules = re.findall(r"python -m (tests[\w.]*)", shell)
    assert modules
    for module in modules:
        path = ROOT / module.replace(".", "/")
        assert (path / "__main__.py").exists() or path.with_suffix(".py").exists(), module
    for names in re.findall(r"--only ([\w,]+)", shell):
        assert command.parts_of(names)


# ---- the page


def test_the_page_has_every_block_that_the_proof_writes() -> None:
    written = {
        "worlds": ("overlaps", "worlds"),
        "planted": ("planted",),
        "model": ("model", "conditions"),
        "histories": ("histories",),
        "chaos": ("storms", "starved"),
        "mutants": ("mutants",),
        "damage": (),
        "cases": ("cases",),
    }
    assert written.keys() == PARTS.keys()
    assert {name for names in written.values() for name in names} == blocks(RELIABILITY.text).keys()


def test_a_block_is_replaced_and_all_else_is_left() -> None:
    new = with_blocks(WRITTEN, {"worlds": "new\n\n| 1 |"})
    assert new == WRITTEN.replace("old", "new\n\n| 1 |")
    assert with_blocks(new, {"worlds": "old"}) == WRITTEN


def test_a_block_that_the_page_lacks_is_told() -> None:
    with pytest.raises(KeyError, match="chaos"):
        with_blocks(WRITTEN, {"chaos": "new"})


def test_each_part_makes_its_blocks_of_what_its_tests_leave(tmp_path: Path) -> None:
    some, calm = run_worlds([SHORT]).plain(), run_worlds([SHORT], faults=False).plain()
    for name in ("worlds-000", "worlds-001", "calm-000"):
        (tmp_path / f"{name}.json").write_text(json.dumps(calm if "calm" in name else some))
    made = dict(parts.worlds(Left(tmp_path)))
    assert f"| claims | {2 * some['claims']:,} |" in made["worlds"]
    assert "| seeds | 0 to 1 |" in made["worlds"]
    assert "0 violations, 0 overrides and 0 overlaps" in made["worlds"]
    assert f"| {2 * some['handled']:,} |" in made["overlaps"]


# ---- the command


@pytest.fixture
def written(tmp_path: Path) -> Path:
    (tmp_path / "page.md").write_text(WRITTEN)
    return tmp_path / "page.md"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[dict[str, object]]]:
    """Instead of pytest: notes how it is called, and leaves a figure."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout of git")

    def ends_with(code: int) -> list[dict[str, object]]:
        called: list[dict[str, object]] = []

        def run(folders: list[str], options: list[str], **said: object) -> int:
            called.append({"folders": list(folders), "options": list(options), **said})
            if left := said.get("left"):
                Path(str(left), "figure.json").write_text("7")
            if code == command.INTERRUPTED:
                raise KeyboardInterrupt
            return code

        monkeypatch.setattr(command, "pytest", run)
        return called

    def blocks_of(left: Left) -> parts.Blocks:
        yield "worlds", f"figure {left.one('figure')}"

    one: Part = replace(PARTS["worlds"], blocks=blocks_of)
    monkeypatch.setitem(PARTS, "worlds", one)
    return ends_with


Runs = Callable[[int], list[dict[str, object]]]


def test_figures_are_written_with_the_commit_that_they_are_of(written: Path, runs: Runs) -> None:
    called = runs(0)
    assert command.main(["--record", "--only", "worlds", "-x"], written) == 0
    (block,) = blocks(written.read_text()).values()
    figure, origin = block.split("\n\n")
    assert figure == "figure 7"
    assert re.search(r"commit `[0-9a-f]{7,}`", origin)
    (call,) = called
    assert call["folders"] == ["simulator"]
    assert call["is_long"] is False
    assert str(call["options"]).endswith("'-x']")


@pytest.mark.parametrize("code", [1, 130])
def test_what_fails_or_is_interrupted_leaves_the_figures_as_they_were(
    written: Path, runs: Runs, code: int
) -> None:
    runs(code)
    assert command.main(["--record", "--only", "worlds"], written) == code
    assert written.read_text() == WRITTEN


def test_without_record_nothing_is_written_and_all_parts_run_at_once(
    written: Path, runs: Runs
) -> None:
    called = runs(0)
    assert command.main([], written) == 0
    assert written.read_text() == WRITTEN
    (call,) = called
    assert call["folders"] == [one.tests for one in PARTS.values() if one.tests]


def test_every_folder_of_the_proof_is_a_part() -> None:
    folders = {path.parent.name for path in parts.HERE.rglob("test_*.py")}
    assert folders == {one.tests for one in PARTS.values() if one.tests}


def test_the_long_form_of_chaos_has_the_machine_for_itself(written: Path, runs: Runs) -> None:
    called = runs(0)
    assert command.main(["--long", "--only", "worlds,chaos"], written) == 0
    worlds, chaos = called
    assert worlds["is_long"] is chaos["is_long"] is True
    assert (worlds["options"], chaos["options"]) == ([*command.SHARED_OUT], [])


# ---- tables


def test_a_small_share_is_not_told_as_none() -> None:
    assert [share(0, 9), share(1, 30_000), share(1, 8)] == ["0", "0.0033 %", "12 %"]


def test_numbers_in_tables_have_commas() -> None:
    assert table(("a", "b"), [("x", 12345)]) == "| a | b |\n| --- | --- |\n| x | 12,345 |"
    rows = chosen((("a", "A"),), [{"a": 1, "b": 2}, {"a": 3}])
    assert rows == "| A |\n| --- |\n| 1 |\n| 3 |"
