"""How the demo speaks: titles, paragraphs, and lines that are shown as they are."""

import textwrap
from collections.abc import Iterable, Sequence

from blackboard.cli.layout import ANSI, RESET, Line, Style
from blackboard.demo.stage import INDENT, WIDTH, Stage, indented


class Telling:
    """Speaks on a stage."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def title(self, text: str) -> None:
        bold = f"{ANSI[Style.TITLE]}{text}{RESET}" if self.stage.colour else text
        self.stage.say(["", bold])

    def say(self, text: str) -> None:
        """A paragraph, filled, whatever its lines were in the program."""
        self.stage.say(
            textwrap.wrap(
                " ".join(text.split()),
                width=min(self.stage.width, WIDTH) + len(INDENT),
                initial_indent=INDENT,
                subsequent_indent=INDENT,
                break_long_words=False,
                break_on_hyphens=False,
            )
        )

    def lines(self, lines: Iterable[str]) -> None:
        """Lines that are not filled: commands, for one, are to be copied."""
        self.stage.say([f"{INDENT}{line}".rstrip() for line in lines])

    def table(self, table: Sequence[Line]) -> None:
        self.stage.say(indented(table, colour=self.stage.colour))


def listed(names: Iterable[str]) -> str:
    """As in "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
