"""docs/settings.md, written from the settings' own definitions.

python -m tests.support.settings_page       writes it
"""

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from blackboard.settings import described

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
ABOVE = """\
# Settings

`blackboard.toml` holds the settings of a board and its workers. It is read from the current folder,
or from `--config FILE`. A name that it does not know, or a bad value, is refused with its line. An
option of the command line wins over the file. What an item says wins over `[types]`, and that wins
over `@handler`.

Durations are text such as `"90s"`, `"8h"`, `"1d12h"`. This page is written by
`python -m tests.support.settings_page`.
"""
BELOW = """\
## `[jobs.NAME]`

Settings of a job, which its handlers get as `ctx.settings`. Those of `calendars` are in
[calendars](calendars.md), those of `shell` in [handlers](handlers.md).

## `[calendars]`

Windows by name, for `blackout`: `holidays = ["01-01", "12-24..12-26"]`. See
[schedules](schedules.md#times-without-runs).
"""


def page() -> str:
    return "\n".join([ABOVE, *_tables(), BELOW])


def _tables() -> Iterator[str]:
    for head, settings in groupby(described(), key=lambda one: one.table):
        yield f"## `{head}`\n"
        yield "| setting | value | default | meaning |\n|---|---|---|---|"
        for one in settings:
            yield f"| `{one.name}` | {one.kind} | {_shown(one.default)} | {one.meaning} |"
        yield ""


def _shown(default: str) -> str:
    """A value as code, words as they are."""
    is_value = default[:1] in {'"', "["} or default.isdigit() or default in {"true", "false"}
    return f"`{default}`" if is_value else default or "-"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stderr.write(f"wrote {PAGE}\n")
