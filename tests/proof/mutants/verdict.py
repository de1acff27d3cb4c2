"""Whether the tests of the rules are good enough: most mutants killed, and a reason for the rest.

A mutant is the code with one small change. One that no test notices has survived: either a test is
missing, or nobody could tell the difference, and `survivors.toml` says why. It names a survivor by
its function and the line that was changed, so that edits elsewhere leave the list as it is.
"""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

LEAST_KILLED = 95.0
"""Percent."""
LIST = Path(__file__).with_name("survivors.toml")

_NAME = re.compile(r"(?P<module>.+)\.x(?:_|ǁ(?P<owner>\w+)ǁ)(?P<function>\w+)__mutmut_\d+")


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Change:
    """What was changed where: the function with its module, the line without its indentation."""

    function: str
    was: str
    becomes: str

    def __str__(self) -> str:
        return f"{self.function}\n    - {self.was}\n    + {self.becomes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    mutants: int
    survivors: Mapping[Change, str]
    """Why each survived; "" where nobody has said so."""
    listed_in_vain: Collection[Change]
    """They were killed, or are not made any more."""

    @property
    def killed(self) -> int:
        return self.mutants - len(self.survivors)

    @property
    def percent(self) -> float:
        return 100 * self.killed / self.mutants

    def problems(self) -> Iterator[str]:
        if self.percent < LEAST_KILLED:
            yield f"less than {LEAST_KILLED:g} % were killed"
        for change, reason in self.survivors.items():
            if not reason:
                yield f"survived, and {LIST.name} does not say why: {change}"
        for change in self.listed_in_vain:
            yield f"stands in {LIST.name}, and did not survive: {change}"


def judge(mutants: int, survivors: Collection[Change], listed: Mapping[Change, str]) -> Verdict:
    return Verdict(
        mutants=mutants,
        survivors={change: listed.get(change, "") for change in sorted(survivors)},
        listed_in_vain=sorted(listed.keys() - set(survivors)),
    )


def read_list(text: str) -> dict[Change, str]:
    """The survivors that are known, each with its reason."""
    return {
        Change(function=one["function"], was=one["was"], becomes=one["becomes"]): one["reason"]
        for one in tomllib.loads(text)["survivor"]
    }


def change_of(name: str, diff: str) -> Change:
    """The change that mutmut calls `name` and shows as `diff`."""
    found = _NAME.fullmatch(name)
    assert found is not None, name
    owner = f"{found['owner']}." if found["owner"] else ""
    lines = diff.partition("@@")[2].splitlines()[1:]
    was, becomes = (
        "\n".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"
    )
    return Change(
        function=f"{found['module']}.{owner}{found['function']}", was=was, becomes=becomes
    )
