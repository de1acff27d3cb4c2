"""`blackboard simulate`."""

import re
import sys
from datetime import timedelta
from io import StringIO

import pytest

from blackboard import cost
from blackboard.cli.simulate import _no_more_than_a_day
from blackboard.cli.simulate_results import LONGEST, Simulated, story_of
from blackboard.model import Lock, Member, Outcome
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.members import announce
from blackboard.rules import due as claims
from blackboard.simulator.network import Fate, Fated
from blackboard.simulator.scenario import (
    OF_A_BOARD,
    Fault,
    FaultPlan,
    Injection,
    Scenario,
    synthetic,
)
from blackboard.simulator.world import World
from tests.cli.command_line import CommandLine, blackboard

__all__ = ["blackboard"]

pytestmark = pytest.mark.of_sqlite("the worlds have no store, and boards are read as by `cost`")

SMALL = ("simulate", "--items", "6", "--every", "10m", "--workers", "2", "--hours", "1")
TROUBLED = (*SMALL, "--takes", "1m", "--trouble-every", "30s", "--faults")
KEYS = {
    "": "scenario seconds runs outcomes late overrides superseded overlap busy requests "
    "stored_bytes bill faults fingerprint violation story again",
    "scenario": "seed items workers slots shards cycle hours faults trouble_every",
    "late": "p50 p99 worst later_than_a_cycle waiting",
    "overlap": "runs seconds share",
    "requests": "batches pages total per_run a_month",
    "bill": "currency requests storage total price_per_million storage_price_per_gb",
}


def test_programs_find_the_same_keys_whatever_happened(blackboard: CommandLine) -> None:
    for args in (SMALL, (*TROUBLED, "all")):
        said = blackboard(*args, "--json").json
        for name, keys in KEYS.items():
            assert list(said[name] if name else said) == keys.split()
        assert list(said["outcomes"]) == [one.value for one in Outcome]
        assert (said["violation"], said["story"]) == (None, [])


def test_a_world_in_good_order_runs_all_in_time_and_never_twice_at_a_time(
    blackboard: CommandLine,
) -> None:
    said = blackboard(*SMALL, "--json").json
    assert said["seconds"] == 3600.0
    assert 6 * 5 <= said["runs"] <= 6 * 7
    assert said["outcomes"]["ok"] == sum(said["outcomes"].values())
    assert said["late"]["worst"] < said["scenario"]["cycle"]
    assert said["late"]["later_than_a_cycle"] == said["late"]["waiting"] == 0
    assert said["overlap"] == {"runs": 0, "seconds": 0.0, "share": 0.0}
    assert said["overrides"] == said["superseded"] == 0
    assert said["faults"] == {}


def test_a_month_and_its_bill_are_what_was_asked_for_so_far_and_so_on(
    blackboard: CommandLine,
) -> None:
    said = blackboard(*SMALL, "--price", "2", "--json").json
    asked, bill = said["requests"], said["bill"]
    hours = cost.MONTH.total_seconds() / 3600
    assert asked["total"] == asked["batches"] + asked["pages"]
    assert asked["a_month"] == round(asked["total"] * hours)
    assert asked["per_run"] == asked["total"] / said["runs"]
    assert bill["requests"] == pytest.approx(2 * asked["total"] * hours / 1e6)
    assert bill["total"] == pytest.approx(bill["requests"] + bill["storage"])
    assert said["stored_bytes"] > 6 * cost.ITEM_BYTES


def test_more_than_the_slots_can_take_is_seen(blackboard: CommandLine) -> None:
    busy = ("--takes", "15m", "--slots", "1", "--json")
    said = blackboard(*SMALL, *busy).json
    assert said["busy"] > 0.8
    assert said["late"]["waiting"] > 0
    assert said["late"]["later_than_a_cycle"] >= said["late"]["waiting"]
    assert said["late"]["worst"] > 300
    told = blackboard(*SMALL, *busy[:-1]).out
    assert re.search(rf"^still waiting +{said['late']['waiting']} ", told, re.MULTILINE)


def test_the_same_seed_tells_the_same_story(blackboard: CommandLine) -> None:
    def told(seed: str) -> list[str]:
        said = blackboard(*TROUBLED, "all", "--seed", seed, "--trace", "story.txt")
        return [said.out, (blackboard.folder / "story.txt").read_text()]

    first = told("1")
    assert told("1") == first
    assert told("2")[1] != first[1]


def test_faults_are_counted_by_kind(blackboard: CommandLine) -> None:
    kinds = {"kill", "pause", "lost", "503"}
    said = blackboard(*TROUBLED, ",".join(sorted({"skew"} | kinds)), "--json").json
    assert said["scenario"]["faults"] == sorted({"skew"} | kinds)
    assert set(said["faults"]) == kinds
    assert min(said["faults"].values()) > 0
    assert said["outcomes"]["failed"] + said["outcomes"]["abandoned"] > 0
    told = blackboard(*TROUBLED, "kill").out
    assert re.search(r"^fault: kill +[1-9]", told, re.MULTILINE)
    assert told.endswith("steps\n")


def test_only_faults_that_befell_somebody_are_counted() -> None:
    faults = frozenset({Fault.LOST, Fault.JUMP, Fault.KILL})
    scenario = Scenario(seed=1, items=synthetic(1, every=timedelta(minutes=10)), faults=faults)
    jump = Injection(at=60.0, fault=Fault.JUMP, target=2, seconds=5.0)
    nobody = Injection(at=60.0, fault=Fault.JUMP, target=scenario.workers, seconds=5.0)
    lost = Fated(process="host-0:1", number=1, fate=Fate.NEVER)
    world = World(scenario, FaultPlan(injections=(jump, nobody), fated=(lost,)))
    world.run()
    found = Simulated(world=world, violation=None, size=0, price=0.0, again="")
    assert found.faults == {"kill": 0, "jump": 1, "lost": 1}


def test_the_trace_has_every_line(blackboard: CommandLine) -> None:
    blackboard(*SMALL, "--trace", "story.txt")
    lines = (blackboard.folder / "story.txt").read_text().splitlines()
    assert [float(line.split()[0]) for line in lines] == sorted(
        float(line.split()[0]) for line in lines
    )
    assert sum("claims item-3" in line for line in lines) >= 5


FEEDS = """
[worker]
cycle = "20s"
slots = 4
[types.feed]
slots = 1
stale_after = "30s"
"""


def test_without_items_it_is_the_board_that_is_simulated(blackboard: CommandLine) -> None:
    blackboard.write(FEEDS)
    blackboard("init", "--shards", "2")
    blackboard(
        "add", "a", "b", "c", "--type", "feed", "--every", "10m", "--set", "token=${NOBODYS}"
    )
    blackboard("add", "night", "--type", "report", "--cron", "0 3 * * *")
    blackboard("add", "once", "--type", "report", "--at", "2090-01-01T00:00")
    blackboard("add", "away", "--type", "report", "--every", "1h")
    blackboard("pause", "away")
    before = blackboard.rows()
    args = ("simulate", "--workers", "1", "--hours", "4", "--takes", "1m", "--json")
    told = blackboard(*args)
    said = told.json
    assert "left out: 2 items" in told.err
    assert blackboard.rows() == before
    scenario = said["scenario"]
    assert (scenario["items"], scenario["shards"], scenario["slots"]) == (4, 2, 4)
    assert scenario["cycle"] == 20.0
    assert said["outcomes"]["ok"] == sum(said["outcomes"].values())
    assert 3 * 20 <= said["runs"] <= 3 * 24 + 1
    # One slot for the type: three that take a minute and are due together wait for each other.
    assert said["late"]["later_than_a_cycle"] > 0


def test_a_slot_that_its_type_says_may_be_missed_is_no_broken_promise(
    blackboard: CommandLine,
) -> None:
    """More items than slots, so that some are late; what they do then stands in `[types]`."""
    blackboard.write('[types.feed]\ncron = "* * * * *"\nmissed = "none"\nmissed_after = "5s"\n')
    blackboard("init")
    blackboard("add", *(f"feed{number}" for number in range(6)), "--type", "feed")
    args = ("simulate", "--workers", "1", "--slots", "2", "--hours", "0.2", "--takes", "40s")
    said = blackboard(*args, "--json").json
    assert said["violation"] is None
    assert said["runs"] < 6 * 12


def test_a_schedule_that_ends_is_no_broken_promise(blackboard: CommandLine) -> None:
    blackboard("init")
    blackboard("add", "a", "b", "--type", "feed", "--every", "10m", "--max-runs", "2")
    blackboard("add", "c", "d", "--type", "feed", "--cron", "*/10 * * * *", "--max-runs", "1")
    blackboard("add", "e", "--type", "feed", "--cron", "*/5 * * * *")
    args = ("simulate", "--hours", "0.5", "--faults", "edit", "--trouble-every", "10s", "--json")
    for seed in ("3", "5"):
        assert blackboard(*args, "--seed", seed).json["violation"] is None


def test_a_run_takes_as_long_as_its_last_one(blackboard: CommandLine) -> None:
    blackboard("init")
    blackboard("add", "slow", "--type", "feed", "--every", "1h")
    held = blackboard.start("slow")
    blackboard.finish(held)
    (lasted,) = blackboard("log", "slow", "--json").json
    args = ("simulate", "--workers", "1", "--slots", "1", "--hours", "10", "--takes", "30m")
    said = blackboard(*args, "--json").json
    assert lasted["duration"] < 60
    assert said["busy"] < 0.1


def test_as_many_workers_as_have_announced_themselves_or_eight(blackboard: CommandLine) -> None:
    async def at_work(board: BoardTable) -> None:
        now = await board.table.now()
        for owner in ("host:1:a", "host:2:b"):
            member = Member(owner=owner, started=now, seen=now, slots=8, running=0, release="1")
            await announce(board, member)

    blackboard("init")
    blackboard("add", "a", "--type", "feed", "--every", "1h")
    brief = ("simulate", "--hours", "0.1", "--json")
    assert blackboard(*brief).json["scenario"]["workers"] == 8
    blackboard.on_board(at_work)
    assert blackboard(*brief).json["scenario"]["workers"] == 2


@pytest.mark.parametrize(
    ("workers", "shards", "runs", "hours"),
    [(8, 1, 25.0, 24), (20, 16, 1_000.0, 24), (40, 16, 10_000.0, 19), (200, 64, 12_500.0, 1)],
)
def test_of_a_large_board_fewer_hours_are_simulated_than_a_day(
    workers: int, shards: int, runs: float, hours: int
) -> None:
    """A plan for 100,000 items and 200 workers is there within minutes, not hours."""
    scenario = Scenario(seed=1, items=(), workers=workers, shards=shards)
    assert _no_more_than_a_day(scenario, runs) == hours


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("--faults", "kil"), "faults: 'kil'"),
        (("--faults", "kill,bus"), "faults: 'bus'"),
        (("--every", "soon"), "every: "),
        (("--takes", "0s"), "takes: "),
        (("--cycle", "5"), "cycle: "),
        (("--trouble-every", "x"), "trouble_every: "),
        (("--hours", "0"), "hours: 0"),
        (("--hours", "nan"), "Invalid value for '--hours'"),
        (("--hours", "0", "--faults", "kil"), "faults: 'kil'"),
        (("--price", "cheap"), "price: 'cheap'"),
        (("--trace", "nowhere/story.txt"), "trace: nowhere/story.txt"),
        (("--workers", "0"), "Invalid value for '--workers'"),
        (("--shards", "1000"), "Invalid value for '--shards'"),
    ],
)
def test_bad_input_is_named(blackboard: CommandLine, args: tuple[str, ...], named: str) -> None:
    assert blackboard.refused(*SMALL, *args).startswith(named)


def test_a_board_without_anything_to_simulate_is_said_so(blackboard: CommandLine) -> None:
    assert "blackboard init" in blackboard.refused("simulate")
    blackboard("init")
    assert "make some up: --items" in blackboard.refused("simulate")
    assert blackboard.refused("simulate", "--every", "8h", "--hours", "0").startswith("every: ")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug is planted: locks count as stale after five seconds, whatever their leases."""

    def is_stale(lock: Lock, *, resolution: float) -> bool:
        return lock.age > 5 + resolution

    monkeypatch.setattr(claims, "is_stale", is_stale)


@pytest.mark.usefixtures("impatient")
def test_a_broken_promise_is_told_with_its_story(blackboard: CommandLine) -> None:
    args = ("--json", *SMALL, "--takes", "1m", "--hours", "0.9999999")
    said = blackboard(*args, code=1).json
    found = said["violation"]
    assert found["kind"] == "OVERRIDE"
    assert found["at"] == said["seconds"] < 3600
    assert any(f" claims {found['item']}, fence 1" in line for line in said["story"])
    assert f"overrides {found['item']}" in said["story"][-1]
    assert said["again"] == (
        "blackboard --json simulate --items 6 --every 10m --takes 1m --workers 2 --hours 0.9999999"
    )
    told = blackboard(*args[1:], code=1).out
    assert f"{found['kind']}: {found['what']} ({found['item']})" in told
    assert all(line in told for line in said["story"])
    again = told.splitlines()[-1].strip()
    assert blackboard(*again.split()[1:], code=1).out == told


@pytest.mark.usefixtures("impatient")
def test_a_broken_promise_is_brought_down_to_what_it_takes(blackboard: CommandLine) -> None:
    whole = blackboard("--json", *SMALL, "--takes", "1m", "--shrink", code=1)
    assert whole.json["violation"]["kind"] == "OVERRIDE"
    assert whole.json["scenario"]["items"] == 1
    assert "it takes 1 item, " in whole.err.splitlines()[-1]


def test_a_story_is_of_its_item_and_of_those_who_touched_it() -> None:
    scenario = Scenario(seed=1, items=synthetic(12, every=cost.MONTH))
    lines = [
        "        1.000  host-1:2      claims item-1, fence 1",
        "        2.000  host-1:2      claims item-11, fence 1",
        "        3.000  host-2:3      is killed",
        "        4.000  host-1:2      stops for 60.0 s",
        "        5.000  store         is away for 3.0 s",
        "        6.000  host-3:1      claims item-2, fence 1",
    ]
    assert story_of("item-1", lines, scenario=scenario) == [lines[0], lines[3], lines[4]]
    assert story_of("", lines, scenario=scenario) == lines
    assert story_of("", lines * 20, scenario=scenario) == (lines * 20)[-LONGEST:]


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_how_far_it_is_and_the_story_is_the_same(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = blackboard(*TROUBLED, "all", "--json").json
    text = blackboard(*TROUBLED, "all").out
    monkeypatch.setattr("blackboard.cli.progress.QUICK", 0.0)
    monkeypatch.setattr("blackboard.cli.progress.BETWEEN_DRAWINGS", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert blackboard(*TROUBLED, "all").out == text
    assert "simulating" in terminal.getvalue()
    assert "100%" in terminal.getvalue()
    monkeypatch.setattr(sys, "stderr", programs := Terminal())
    assert blackboard(*TROUBLED, "all", "--json").json == without
    assert programs.getvalue() == ""


def test_the_help_has_every_kind_of_fault(blackboard: CommandLine) -> None:
    told = " ".join(blackboard("simulate", "--help").out.split())
    kinds = told.partition("Kinds of faults: ")[2].partition(". ")[0]
    assert kinds.split(", ") == [one.value for one in Fault if one in OF_A_BOARD]
