"""docs/azure.md is true: its commands can be called, and its numbers are the code's."""

import re
from datetime import timedelta

import pytest

from blackboard import cost
from blackboard.cost import Load, asked_for
from blackboard.model import ANNOUNCE_EVERY
from blackboard.rules.breaker import LONGEST, SPACING
from blackboard.rules.due import HOLDERS_SHARE
from blackboard.tables import azure, azure_transport
from blackboard.tables.azure_address import CONNECTION_STRING
from blackboard.tables.azure_clock import JUMP
from blackboard.tables.azure_credentials import _PRINCIPAL, _TOKEN_FILE, ROLE, Proof
from blackboard.worker.heartbeat import LAST_CHANCE
from blackboard.worker.outage_reports import REPORT_EVERY
from tests.deploy.files import ROOT, calls_in
from tests.deploy.test_promises import understood
from tests.support.pages import page

AZURE = page("azure.md")
HALF = cost.PLANNED


def test_every_command_can_be_called() -> None:
    calls = list(calls_in(AZURE.text))
    assert len(calls) > 5
    for args in calls:
        understood(args)


def test_files_that_are_named_are_there() -> None:
    named = re.findall(r"`((?:deploy|docs)/[\w./]+)`", AZURE.text)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    "sentence",
    [
        (
            f"A connection may take {azure_transport.CONNECT:g} s, "
            f"a batch {azure_transport.COMMIT:g} s,"
        ),
        f"a page {azure_transport.PAGE:g} s.",
        f"a page of {azure.FIRST_PAGE}",
        f"when it is {azure.AzureTable.resolution:g} s older",
        f"by more than {JUMP:g} s",
        f"up to {LONGEST:g} s",
        f"1 for {cost.CLAIMS} claims, 1 for {cost.RELEASES} releases",
        f"{cost.IN_BULK:.2f} a run",
        f"at ${cost.PRICE:g} for a million",
        f"{cost.PARTITION:,} / {cost.ROWS_A_RUN} = {cost.PARTITION // cost.ROWS_A_RUN} runs",
        f"1 to {cost.MOST_SHARDS})",
        f"the role {ROLE}",
        f"`{CONNECTION_STRING}`",
        f"`{_TOKEN_FILE}`",
        *(f"`{name}`" for name in _PRINCIPAL),
    ],
)
def test_a_number_or_a_name_is_the_codes(sentence: str) -> None:
    assert sentence in AZURE.prose


def test_the_words_for_numbers_are_right() -> None:
    assert (ANNOUNCE_EVERY, REPORT_EVERY, SPACING) == (60.0, 60.0, 1.0)
    assert pytest.approx(0.9) == HOLDERS_SHARE + LAST_CHANCE, "nine tenths"
    for part in ("service t,", "resource types sco", "permissions raud"):
        assert part in Proof.SIGNATURE.value
    assert cost.PARTITION / 2 == HALF
    assert int(HALF / cost.ROWS_A_RUN) // 10 * 10 == 140
    assert pytest.approx(500_000, rel=0.05) == HALF / cost.ROWS_A_RUN * 3600


def test_the_shards_of_the_example_boards() -> None:
    units = {"h": 3600.0, "minutes": 60.0, "hour": 3600.0}
    rows = AZURE.table("the board").rows
    assert len(rows) > 3
    for board, entities, shards in rows:
        items, every, unit = re.findall(r"([\d,]+) items every (?:(\d+) )?(\w+)", board)[0]
        rate = float(items.replace(",", "")) / (float(every or 1) * units[unit]) * cost.ROWS_A_RUN
        assert float(entities.replace(",", "")) == pytest.approx(rate, rel=0.02)
        assert int(shards) == max(1, -(-rate // HALF))


def test_a_herd_takes_as_long_as_it_says() -> None:
    assert "700,000 entities, six minutes of one shard and 22 s of sixteen" in AZURE.prose
    assert 100_000 * cost.ROWS_A_RUN == 700_000
    assert pytest.approx(6, rel=0.05) == 700_000 / cost.PARTITION / 60
    assert pytest.approx(22, rel=0.01) == 700_000 / cost.PARTITION / 16


def test_an_idle_board_costs_what_it_says() -> None:
    idle = asked_for(Load(rhythms=[], workers=3, cycle=timedelta(minutes=1)))
    assert idle.walks == pytest.approx(138_000, rel=0.01)
    assert cost.bill(idle.walks, size=0) == pytest.approx(0.005, rel=0.02)
    assert cost.bill(16 * idle.walks, size=0) == pytest.approx(0.08, rel=0.02)
    alone = asked_for(Load(rhythms=[], cycle=timedelta(minutes=1)))
    assert cost.bill(alone.total, size=0) < 0.01
