"""`blackboard cost`."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from blackboard import cost
from blackboard.cli.cost import Estimate, lines, view
from blackboard.cost import Load, Rhythm
from blackboard.model import Member, replace
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.members import announce
from tests.cli.command_line import CommandLine, blackboard
from tests.support.clocks import START

__all__ = ["blackboard"]

EVERY_MINUTE = Rhythm(
    interval=timedelta(minutes=1), ready=START, lasts=timedelta(0), renewed=20.0, spec=100
)
ESTIMATE = Estimate(
    load=Load(rhythms=[EVERY_MINUTE] * 1000),
    price=cost.PRICE,
    billed=True,
    announced=True,
)


def text(estimate: Estimate) -> str:
    return "\n".join(lines(estimate))


def test_a_board_tells_its_items_runs_and_requests(blackboard: CommandLine) -> None:
    blackboard("init")
    blackboard("add", "a", "b", "c", "--type", "feed", "--every", "8h")
    blackboard("add", "once", "--type", "feed", "--at", "2090-01-01T00:00")
    blackboard("pause", "c")
    said = blackboard("cost", "--json").json
    assert (said["items"], said["runs"], said["shards"], said["workers"]) == (2, 183, 1, 1)
    asked = said["requests"]
    assert asked["claims"] == asked["releases"] == 183
    assert asked["total"] == pytest.approx(sum(asked[kind] for kind in KINDS), abs=len(KINDS))
    assert said["bill"]["total"] == pytest.approx(asked["total"] / 1e6 * cost.PRICE, rel=0.01)
    assert said["bill"]["billed"] is False


KINDS = (
    *("walks", "claims", "releases", "renewals", "races", "membership", "pruning"),
    "coordinator",
)


def test_what_is_said_stands_for_what_is_there(blackboard: CommandLine) -> None:
    blackboard("init", "--shards", "2")
    blackboard.write('[worker]\ncycle = "30s"\n')
    usual = blackboard("cost", "--json").json
    assert (usual["cycle"], usual["shards"], usual["workers"]) == (30.0, 2, 1)
    said = blackboard(
        *("cost", "--json", "--cycle", "15s", "--shards", "4", "--workers", "5", "--price", "2")
    ).json
    assert (said["cycle"], said["shards"], said["workers"]) == (15.0, 4, 5)
    assert said["requests"]["walks"] == pytest.approx(20 * usual["requests"]["walks"], rel=1e-5)
    assert said["requests"]["per_idle_cycle"] == 4
    assert (said["bill"]["price_per_million"], said["bill"]["priced"]) == (2.0, None)


def test_announced_workers_are_counted(blackboard: CommandLine) -> None:
    async def at_work(board: BoardTable) -> None:
        now = await board.table.now()
        for owner in ("host:1:a", "host:2:b"):
            await announce(
                board,
                Member(owner=owner, started=now, seen=now, slots=8, running=0, release="1"),
            )

    blackboard("init")
    assert "1 worker (assumed)" in blackboard("cost").out
    blackboard.on_board(at_work)
    assert blackboard("cost", "--json").json["workers"] == 2
    assert "2 workers (announced)" in blackboard("cost").out


def test_sqlite_costs_nothing(blackboard: CommandLine) -> None:
    blackboard("init")
    told = blackboard("cost").out.splitlines()[-1]
    assert told.startswith(
        "this store costs nothing; on Azure it would cost less than $0.01 a month"
    )
    assert cost.PRICED in told


def test_intervals_of_handlers_count_and_unknown_types_do_not_matter(
    blackboard: CommandLine,
) -> None:
    blackboard.write("[types.feed]\nevery = '1h'\n")
    blackboard("init")
    blackboard("add", "a", "--type", "feed")
    assert blackboard("cost", "--json").json["runs"] == round(cost.MONTH / timedelta(hours=1))
    blackboard.write("")
    assert blackboard("cost", "--json").json["items"] == 0


@pytest.mark.parametrize(
    ("option", "value"), [("--price", "cheap"), ("--price", "-1"), ("--cycle", "soon")]
)
def test_bad_input_is_named(blackboard: CommandLine, option: str, value: str) -> None:
    blackboard("init")
    assert blackboard.refused("cost", option, value).startswith(option.lstrip("-") + ": ")


WORKER = ("--jobs", "jobs.py", "--until-idle", "--json")
JOBS = """
from blackboard import handler

@handler("feed", every="8h")
async def feed(item, ctx):
    pass
"""


def test_a_worker_tells_what_it_asked_for_with_every_walk_and_at_the_end(
    blackboard: CommandLine,
) -> None:
    blackboard.write(JOBS, "jobs.py")
    blackboard("init")
    blackboard("add", "a", "b", "--type", "feed")
    done = subprocess.run(
        [sys.executable, "-m", "blackboard", "worker", *WORKER],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    told = [json.loads(line) for line in done.stderr.splitlines()]
    walks = [one["requests"]["total"] for one in told if one["event"] == "walked"]
    end = told[-1]
    assert (end["event"], end["runs"]) == ("worker stopped", 2)
    assert end["requests"]["commits"] >= 4
    assert 0 < sum(walks) <= end["requests"]["total"]


def test_one_item_runs_and_a_short_cycle_is_not_nothing() -> None:
    load = replace(ESTIMATE.load, rhythms=[EVERY_MINUTE], cycle=timedelta(milliseconds=1))
    told = text(replace(ESTIMATE, load=load))
    assert told.startswith("1 item that runs repeatedly, ")
    assert "cycle 1ms" in told


def test_a_bill_names_its_price() -> None:
    told = text(ESTIMATE).splitlines()[-1]
    month = ESTIMATE.bill
    assert told.startswith(f"${month:,.2f} a month, at $0.036 for a million transactions (list")
    assert "as you said" in text(replace(ESTIMATE, price=0.05))


def test_too_few_shards_and_large_herds_are_told() -> None:
    load = Load(rhythms=[replace(EVERY_MINUTE, interval=timedelta(seconds=1))] * 1000)
    told = text(replace(ESTIMATE, load=load))
    assert "too few: `init --shards 7`" in told
    assert "largest herd: 1,000 items ready in the same second" in told
    assert "3.5s" in told
    assert "enough" in text(replace(ESTIMATE, load=replace(load, shards=7)))


def test_people_and_programs_are_told_the_same() -> None:
    told, said = text(ESTIMATE), view(ESTIMATE)
    for kind in KINDS:
        assert f"{said['requests'][kind]:,}" in told
    assert f"{said['requests']['total']:,}" in told
    assert f"{said['requests']['least']:,} at the least" in told
