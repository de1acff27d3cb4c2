"""docs/reliability.md is what the figures make of it, and the figures are good; measuring keeps
nothing of what failed.

What it says of the cases is compared in test_cases.py, where all tests are collected anyway.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.history.planted import WAYS
from tests.model import judges
from tests.model.conditions import Conditions
from tests.pages import page
from tests.reliability import __main__ as command
from tests.reliability import writing
from tests.reliability.bugs import bugs_table
from tests.reliability.measured import ROOT, Figures, Measured, Origin, kept
from tests.reliability.parts import PARTS, Failed, Wanted
from tests.reliability.promises import PROMISES
from tests.reliability.telling import chosen, share, table

LEAST = 100_000
"""Worker-hours in which everything goes wrong."""


@pytest.fixture(scope="module")
def figures() -> dict[str, Figures]:
    return {part: one.figures for part, one in kept().items()}


def test_the_page_is_what_its_figures_make_of_it() -> None:
    written = page("reliability.md")
    (cases,) = [one for one in written.paragraphs if one.startswith("| case |")]
    made = writing.page(kept(), cases=cases, bugs=bugs_table())
    assert written.text == made, "run python -m tests.reliability write"


def test_every_part_was_measured(figures: dict[str, Figures]) -> None:
    assert figures.keys() == PARTS.keys()


def test_no_promise_was_broken_in_so_many_worker_hours(figures: dict[str, Figures]) -> None:
    assert figures["worlds"]["violations"] == figures["calm"]["violations"] == []
    assert figures["worlds"]["worker_hours"] >= LEAST
    assert all(figures["worlds"][name] > 1_000 for name in ("overrides", "late", "overlaps"))


def test_without_faults_nothing_overlapped(figures: dict[str, Figures]) -> None:
    calm = figures["calm"]
    assert (calm["overlaps"], calm["overlapped"], calm["overrides"]) == (0, 0, 0)
    assert calm["handled"] > 10_000


def test_all_that_was_planted_was_found(figures: dict[str, Figures]) -> None:
    assert len(figures["planted"]["bugs"]) >= 25
    assert all(None not in bug["worker_hours"] for bug in figures["planted"]["bugs"])
    told = {kind for bug in figures["planted"]["bugs"] for kind in bug["kinds"]}
    assert {kind for one in PROMISES for kind in one.simulator} <= told
    damaged = figures["histories"]["planted"]
    assert (damaged["found"], damaged["ways"]) == (damaged["planted"], len(WAYS))
    left_out = {one["condition"] for one in figures["model"]["left_out"]}
    assert left_out == set(Conditions._fields)


def test_chaos_left_every_board_whole_and_did_its_work(figures: dict[str, Figures]) -> None:
    storms, starved = figures["chaos"]["storms"], figures["chaos"]["starved"]
    assert {one["store"] for one in storms} == {"sqlite", "azurite"}
    assert all(one["problems"] == 0 and one["percent_done"] >= 80 for one in storms)
    assert [one["lost_locks"] for one in starved] == [0] * len(starved) != []
    assert figures["chaos"]["tests"] > 40


# ---- who sees to the promises


def test_oracles_that_are_named_are_there() -> None:
    folder = ROOT / "blackboard" / "simulator"
    text = "\n".join(path.read_text() for path in folder.rglob("*.py"))
    kinds = {kind for one in PROMISES for kind in one.simulator}
    assert [kind for kind in kinds if f'"{kind}"' not in text] == []


def test_invariants_and_tests_that_are_named_are_there() -> None:
    invariants = {text for text in vars(judges).values() if isinstance(text, str)}
    named = {one for promise in PROMISES for one in promise.model}
    assert named <= invariants
    files = {file for promise in PROMISES for file in promise.chaos}
    assert [file for file in files if not (ROOT / "tests" / "chaos" / file).exists()] == []


def test_programs_and_files_that_are_named_are_there() -> None:
    modules = re.findall(r"python -m (tests[\w.]*)", writing.AGAIN)
    assert len(modules) > 5
    for module in modules:
        path = ROOT / module.replace(".", "/")
        assert (path / "__main__.py").exists() or path.with_suffix(".py").exists(), module
    named = re.findall(r"tests/[\w/]*\w(?:\.\w+)?", writing.AGAIN)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


# ---- measuring and writing


def fine(wanted: Wanted) -> Figures:
    return {"worker_hours": wanted.worker_hours}


def bad(wanted: Wanted) -> Figures:
    raise Failed("seed 3: FENCE: from 2 back to 1")


def interrupted(wanted: Wanted) -> Figures:
    raise KeyboardInterrupt


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Wanted], Figures]], None]:
    """Sets what the part `worlds` is."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout of git")
    return lambda way: monkeypatch.setitem(PARTS, "worlds", way)


def measured(folder: Path) -> int:
    return command.main(
        ["measure", "--only", "worlds", "--worker-hours", "7", "--into", str(folder)]
    )


def test_what_was_measured_is_kept_with_the_commit(
    tmp_path: Path, part: Callable[[Callable[[Wanted], Figures]], None]
) -> None:
    part(fine)
    assert measured(tmp_path) == 0
    found = kept(tmp_path)["worlds"]
    assert found.figures == {"worker_hours": 7.0}
    assert re.fullmatch(r"[0-9a-f]{7,}", found.origin.commit)
    assert [path.name for path in tmp_path.iterdir()] == ["worlds.json"]


@pytest.mark.parametrize(("way", "code"), [(bad, 1), (interrupted, 130)])
def test_what_fails_or_is_interrupted_leaves_the_old_figures(
    tmp_path: Path,
    part: Callable[[Callable[[Wanted], Figures]], None],
    way: Callable[[Wanted], Figures],
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    part(fine)
    measured(tmp_path)
    before = kept(tmp_path)
    part(way)
    assert measured(tmp_path) == code
    assert kept(tmp_path) == before
    assert ("FENCE" in capsys.readouterr().err) == (way is bad)


def test_worlds_are_added_up_over_processes() -> None:
    """By two processes as by one."""
    wanted = [Wanted(worker_hours=60, processes=number) for number in (1, 2)]
    one, two = (PARTS["calm"](each) for each in wanted)
    assert one == two
    assert one["worlds"] == one["last_seed"] - one["first_seed"] + 1
    assert one["worker_hours"] >= 6


def test_worlds_go_on_from_earlier_ones() -> None:
    """Together they are what they would have been in one go."""
    some, all_of_them = Wanted(worker_hours=60, processes=1), Wanted(worker_hours=300, processes=1)
    origin = Origin(version="0.1.0", commit="abc1234", changed=False, date="2026-11-21")
    earlier = Measured(origin=origin, nightly=False, seconds=1.0, figures=PARTS["calm"](some))
    on = replace(all_of_them, earlier={"calm": earlier})
    whole, shared = PARTS["calm"](all_of_them), PARTS["calm"](on)
    (before,) = shared.pop("before")
    assert before["commit"] == "abc1234"
    assert before["worker_hours"] == earlier.figures["worker_hours"]
    assert shared | {"before": []} == whole
    with pytest.raises(Failed, match="kept already"):
        PARTS["calm"](replace(some, earlier={"calm": earlier}))


def test_a_small_share_is_not_told_as_none() -> None:
    assert [share(0, 9), share(1, 30_000), share(1, 8)] == ["0", "0.0033 %", "12 %"]


def test_numbers_in_tables_have_commas() -> None:
    assert table(("a", "b"), [("x", 12345)]) == "| a | b |\n| --- | --- |\n| x | 12,345 |"
    rows = chosen((("a", "A"),), [{"a": 1, "b": 2}, {"a": 3}])
    assert rows == "| A |\n| --- |\n| 1 |\n| 3 |"
