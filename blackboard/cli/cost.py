"""`blackboard cost`: the requests of this board in a month, and what Azure charges for them."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import click

from blackboard import cost
from blackboard.cli.options import Chosen, cli_command, cycle_option, is_number, number_option
from blackboard.cli.output import emit, table_text, wrapped
from blackboard.cli.progress import reading
from blackboard.cli.session import Session
from blackboard.cost import Load, RequestCounts
from blackboard.display.layout import Column, Style
from blackboard.errors import BadInput
from blackboard.phrases import brief, plural
from blackboard.protocol.members import workers
from blackboard.schedule.times import format_duration, parse_duration

COLUMNS = (
    Column(title="requests", least=10, usual=12, worth=9),
    Column(title="a month", least=10, usual=14, worth=8),
    Column(title="for", least=8, usual=60, worth=1),
)
WORDS = {
    "walks": "reads of the board, a little more than one a cycle",
    "claims": "starts of runs",
    "releases": "ends of runs",
    "renewals": "locks of long runs",
    "races": "reads and claims that another worker wins",
    "membership": "one a minute and worker",
    "pruning": "the history",
    "coordinator": "one elected worker keeps house",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    load: Load
    price: float
    billed: bool
    """Whether its store charges for requests."""
    announced: bool
    """Whether the workers are those that have announced themselves."""

    @property
    def asked(self) -> RequestCounts:
        return cost.asked_for(self.load)

    @property
    def least(self) -> RequestCounts:
        """The fewest requests: runs that are ready together are claimed and end together."""
        return cost.asked_for(self.load, together=True)

    @property
    def bill(self) -> float:
        return cost.bill(self.asked.total, size=self.size, price=self.price)

    @property
    def size(self) -> int:
        return cost.stored(self.load)


@cli_command("""\
Examples:
  blackboard cost
  blackboard cost --workers 10 --cycle 30s --shards 4
  blackboard cost --json | jq .bill.total
""")
@cycle_option
@number_option("--workers", "count", most=10_000, line="[the live ones]")
@number_option("--shards", most=cost.MOST_SHARDS, line="[the board's]")
@click.option(
    "--price", metavar="USD", help=f"For a million transactions [{cost.PRICE}, {cost.PRICED}]."
)
def cost_command(
    *, chosen: Chosen, cycle: str | None, count: int | None, shards: int | None, price: str | None
) -> int:
    """Estimate the requests of this board in a month, and their price on Azure.

    Each worker reads each shard every cycle; a run is a claim and a release. Runs that are ready
    together are claimed together, up to 33 in one request, and released together, up to 25. SQLite
    costs nothing.
    """
    per_million = dollars(price)
    session = Session.start(chosen).with_defaults()
    settings = session.settings
    between_walks = parse_duration(cycle or settings.worker.cycle, "cycle")
    retention = settings.retention

    async def read() -> Estimate:
        async with reading(session.board(), "reading items") as board:
            at_work = 0 if count else sum(not worker.lost for worker in await workers(board))
            now = await board.table.now()
            rhythms = [
                rhythm
                async for item in board.items()
                for rhythm in cost.rhythms_of([item], board.resolve, now)
            ]
            return Estimate(
                load=Load(
                    rhythms=rhythms,
                    shards=shards or board.shards,
                    workers=count or at_work or 1,
                    cycle=between_walks,
                    retention=retention,
                    coordinator=settings.board.coordinator,
                ),
                price=per_million,
                billed=cost.price_of(session.store) > 0,
                announced=at_work > 0,
            )

    estimate = asyncio.run(read())
    if chosen.json:
        emit(view(estimate))
    else:
        click.echo("\n".join(lines(estimate)))
    return 0


def dollars(text: str | None) -> float:
    """The price of a million transactions, from --price. Raises BadInput."""
    price = cost.PRICE if text is None else float(text) if is_number(text) else -1.0
    if not 0 <= price < 1e6:
        raise BadInput("price", f"{text!r} is not a price", "US dollars, as in 0.036")
    return price


def lines(estimate: Estimate) -> Iterator[str]:
    load, asked = estimate.load, estimate.asked
    source = "announced" if estimate.announced else "assumed"
    verb = "runs" if len(load.rhythms) == 1 else "run"
    yield wrapped(
        f"{plural(len(load.rhythms), 'item')} that {verb} repeatedly, {round(load.runs):,} runs "
        f"a month; {plural(load.shards, 'shard')}, {plural(load.workers, 'worker')} ({source}), "
        f"cycle {format_duration(load.cycle)}"
    )
    yield ""
    rows = [
        ((kind, Style.PLAIN), (f"{round(number):>10,}", Style.PLAIN), (WORDS[kind], Style.QUIET))
        for kind, number in asked.by_kind.items()
    ]
    total = (("total", Style.TITLE), (f"{round(asked.total):>10,}", Style.TITLE), ("", Style.QUIET))
    least = f"{round(estimate.least.total):,} at the least"
    rows.append((*total[:2], (least, Style.QUIET)))
    yield table_text(COLUMNS, rows, fold=True)
    yield ""
    yield wrapped(
        f"a run: {cost.SINGLY:g} requests by itself, {cost.IN_BULK:.2g} in bulk; "
        f"an idle cycle: {plural(load.shards, 'request')} a worker; computed, not measured"
    )
    yield from _throughput(load)
    yield f"stored: {_size(estimate.size)}, when the history has its full length"
    yield ""
    yield wrapped(_bill(estimate))


def _throughput(load: Load) -> Iterator[str]:
    rate, advised = cost.entities_a_second(load), cost.shards_advised(load)
    words = "enough" if load.shards >= advised else f"too few: `init --shards {advised}`"
    yield wrapped(
        f"rows written: {rate:.2g} a second of the {cost.PLANNED * load.shards:,} to plan with in "
        f"{plural(load.shards, 'shard')}, half of what Azure takes: {words}"
    )
    size, seconds = cost.largest_herd(load)
    if size > 1:
        yield wrapped(
            f"largest herd: {size:,} items ready in the same second; their rows take Azure "
            f"{brief(seconds) if seconds >= 0.1 else 'less than 0.1s'}"
        )


def _size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"


def _bill(estimate: Estimate) -> str:
    priced = "as you said" if estimate.price != cost.PRICE else cost.PRICED
    head = "" if estimate.billed else "this store costs nothing; on Azure it would cost "
    return (
        f"{head}{amount(estimate.bill)} a month, at ${estimate.price:g} for a million "
        f"transactions ({priced}) and ${cost.STORAGE_PRICE:g} for a GB and month"
    )


def amount(bill: float) -> str:
    return f"${bill:,.2f}" if bill >= 0.01 else "less than $0.01"


def view(estimate: Estimate) -> dict[str, Any]:
    load, asked, size = estimate.load, estimate.asked, estimate.size
    herd, seconds = cost.largest_herd(load)
    return {
        "items": len(load.rhythms),
        "runs": round(load.runs),
        "workers": load.workers,
        "shards": load.shards,
        "cycle": load.cycle / timedelta(seconds=1),
        "requests": {
            **{kind: round(number) for kind, number in asked.by_kind.items()},
            "total": round(asked.total),
            "least": round(estimate.least.total),
            "per_run": cost.SINGLY,
            "per_run_in_bulk": round(cost.IN_BULK, 3),
            "per_idle_cycle": load.shards,
        },
        "throughput": {
            "entities_per_second": cost.entities_a_second(load),
            "entities_per_second_of_a_shard": cost.PARTITION,
            "entities_per_second_to_plan_with": cost.PLANNED,
            "shards_advised": cost.shards_advised(load),
            "largest_herd": herd,
            "largest_herd_seconds": round(seconds, 3),
        },
        "stored_bytes": size,
        "bill": {
            **cost.bill_record(asked.total, size=size, price=estimate.price),
            "billed": estimate.billed,
            "priced": cost.PRICED if estimate.price == cost.PRICE else None,
        },
    }
