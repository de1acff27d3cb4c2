"""`blackboard bench`: how fast a store is for boards, measured on a scratch board."""

import math
from dataclasses import asdict
from itertools import count
from typing import TYPE_CHECKING, Any

import click

from blackboard.cli.options import Chosen, NumberRange, cli_command
from blackboard.cli.output import emit, note, table_text
from blackboard.cli.progress import is_shown, progress
from blackboard.cli.session import Session, completed, gc_seldom
from blackboard.display.layout import Column, Line, Style
from blackboard.errors import BadInput

if TYPE_CHECKING:
    from blackboard.bench import Measurement

COLUMNS = (
    Column(title="measured", least=20, usual=32, worth=9),
    Column(title="value", least=16, usual=18, worth=8),
    Column(title="beside", least=10, usual=12, worth=6),
    Column(title="ratio", least=6, usual=8, worth=7),
    Column(title="of", least=10, usual=30, worth=5),
)


@cli_command("""\
Examples:
  blackboard bench
  blackboard bench --store https://ACCOUNT.table.core.windows.net/boards
  blackboard bench --json | jq '.[] | [.name, .value, .unit]'
""")
@click.option(
    "--seconds",
    type=NumberRange(0.1, 60),
    default=4.0,
    metavar="N",
    help="For each measurement, about [4].",
)
def bench_command(*, chosen: Chosen, seconds: float) -> int:
    """Measure how fast the store is for boards; it takes half a minute, or as --seconds says.

    One worker runs handlers that do nothing, on a scratch board: a file beside that of the store,
    or a board of its own in the table. It is deleted afterwards; nothing else is touched. On Azure
    the requests are billed: some thousands.
    """
    from blackboard import bench  # noqa: PLC0415 - what it needs is slow to import

    if math.isnan(seconds):
        raise BadInput("seconds", "nan is not a number of seconds", "0.1 to 60")
    session = Session.start(chosen)
    gc_seldom()  # as in a worker

    measurements: list[bench.Measurement] = []

    async def measure() -> None:
        steps = count()
        with progress("measuring", bench.STEPS, at_once=True) as done:

            def measuring(step: str) -> None:
                if is_shown():
                    done.begun(f"measuring {step}", share=next(steps) / bench.STEPS)
                else:
                    note(f"measuring {step} ...")

            async for measurement in bench.measure(session.store, measuring, seconds=seconds):
                measurements.append(measurement)  # noqa: PERF401 - one by one: it may end by an error

    try:
        completed(measure())
    finally:  # what was measured is shown, whatever ended it
        if measurements and chosen.json:
            emit([*map(view, measurements)])
        elif measurements:
            click.echo(table_text(COLUMNS, [*map(line, measurements)], fold=True))
    return 0


def line(measurement: "Measurement") -> Line:
    return (
        (measurement.name, Style.PLAIN),
        (f"{number_text(measurement.value):>8} {measurement.unit}", Style.TITLE),
        (f"{number_text(measurement.beside):>8}", Style.QUIET),
        (f"{measurement.ratio:.2g}", Style.PLAIN),
        (measurement.reference, Style.QUIET),
    )


def number_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def view(measurement: "Measurement") -> dict[str, Any]:
    return {**asdict(measurement), "ratio": measurement.ratio}
