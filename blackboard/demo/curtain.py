"""The end of the demo: what the board remembers, what lies in the folder, what to try next."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from blackboard.cli.gather import Gathered
from blackboard.cli.show_command import plain_record
from blackboard.demo.picture import NameOf, history_picture
from blackboard.demo.place import Place
from blackboard.demo.results import failed_feeds, files_in, week_in
from blackboard.demo.telling import Telling
from blackboard.demo.towns import BROKEN
from blackboard.errors import BlackboardError
from blackboard.model import Outcome, Run

SHOWN_PLAIN = 3
"""Records of 2009: all sixteen would fill three screens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curtain:
    """Tells of what is left. `program` is how the reader calls the command."""

    telling: Telling
    place: Place
    program: str

    def fall(self, runs: Sequence[Run], *, board: Gathered, name_of: NameOf, today: date) -> None:
        """`runs` are those of the town that was taken over, newest first."""
        if [run.outcome for run in runs] != [Outcome.OK, Outcome.ABANDONED]:
            raise BlackboardError(f"another history than was told: {[*map(str, runs)]}")
        town = runs[0].id
        self._history(runs, board=board, name_of=name_of)
        self._records(board, town)
        self._files()
        self._week(town, today)
        self._commands(town)

    def _history(self, runs: Sequence[Run], *, board: Gathered, name_of: NameOf) -> None:
        self.telling.title(f"What the board remembers of {runs[0].id}, newest first")
        width = self.telling.stage.width
        self.telling.table(history_picture(runs, board=board, name_of=name_of, width=width))

    def _records(self, board: Gathered, town: str) -> None:
        self.telling.title("The board as it was read in 2009: three of its records")
        first = sorted(board.statuses, key=lambda one: one.item.id != town)
        records = "\n\n".join(plain_record(one) for one in first[:SHOWN_PLAIN])
        self.telling.lines(records.split("\n"))

    def _files(self) -> None:
        self.telling.title(f"The files, in {self.place.out}")
        self.telling.lines(
            f"{one.number:2} {one.ending:12} {one.size / 1000:4.0f} kB  {one.about}"
            for one in files_in(self.place.out)
        )
        town, _ = BROKEN
        for name, problem in failed_feeds(self.place.out / f"{town}.report.json"):
            self.telling.say(
                f"""The broken feed spoils nothing: {town} has all of its others, and its report
                says of {name}: "{problem}"."""
            )

    def _week(self, town: str, today: date) -> None:
        self.telling.title(f"The next days in {town}, and who announced what")
        self.telling.lines(week_in(self.place.out / f"{town}.json", today=today))

    def _commands(self, town: str) -> None:
        self.telling.title("Three commands to try next")
        options = f"--config {shlex.quote(str(self.place.settings))}"
        if "BLACKBOARD_STORE" in os.environ:  # it would be asked before the settings are
            options += f" --store {shlex.quote(self.place.store)}"
        commands = ("show", f"log {town}", f"why {town}")
        self.telling.lines(f"{self.program} {options} {one}" for one in commands)
