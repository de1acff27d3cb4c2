"""The rules are changed in every small way, and their tests notice; `survivors.toml` has the reason
for each change that they cannot notice. The short form of the proof makes one change of each
function that has seven.
"""

from pathlib import Path

import pytest

from tests.proof.figures import leave
from tests.proof.form import LONG
from tests.proof.mutants.mutmut import KILLED, TOOL, Mutmut
from tests.proof.mutants.verdict import LIST, judge, read_list

PROCESSES = 2
CHOSEN = "*" if LONG else "*_7"
"""Names of mutants. They end with the number of the mutant of a function."""


@pytest.mark.timeout(1800)
def test_the_tests_of_the_rules_notice_every_change(tmp_path: Path) -> None:
    mutmut = Mutmut(tmp_path)
    fates = mutmut.run(CHOSEN, processes=PROCESSES)
    survivors = [mutmut.change(name) for name in fates if fates[name] not in KILLED]
    listed = read_list(LIST.read_text())
    known = {one: why for one, why in listed.items() if LONG or one in survivors}
    verdict = judge(len(fates), survivors, known)
    figures = {
        "tool": TOOL,
        "mutants": verdict.mutants,
        "killed": verdict.killed,
        "percent": round(verdict.percent, 2),
        "survivors": len(verdict.survivors),
    }
    leave("mutants", figures)
    assert verdict.mutants > 0
    assert list(verdict.problems()) == []
