"""How a simulated world came to a violation: those of its last lines that have to do with it."""

import re
from collections.abc import Sequence

from blackboard.simulator.scenario import Scenario

LONGEST = 40
"""Lines."""
EVERYBODYS = {"world", "store"}


def story_of(item_id: str, lines: Sequence[str], *, scenario: Scenario) -> list[str]:
    """The last lines about an item, and about what befell those who touched it. All of the last
    when it is about no item.
    """
    mine = re.compile(rf"(?<![\w-]){re.escape(item_id)}(?![\w-])" if item_id else "")
    actors = {_who(line) for line in lines if mine.search(line)} | EVERYBODYS
    ids = {one.id for one in scenario.items}
    told = [
        line
        for line in lines
        if mine.search(line) or (_who(line) in actors and not ids & _words(line))
    ]
    return told[-LONGEST:]


def _who(line: str) -> str:
    return line.split()[1]


def _words(line: str) -> set[str]:
    return set(re.split(r"[ ,:]+", line))
