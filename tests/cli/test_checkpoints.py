"""What a run has saved, as people see and change it."""

import sqlite3
from contextlib import closing

import pytest

from blackboard import open_blocking
from tests.cli.command_line import CommandLine, blackboard

__all__ = ["blackboard"]

JOBS = """
from blackboard import handler

@handler("crawl", every="1d", retries=1, backoff="1h")
async def crawl(item, ctx):
    done = ctx.checkpoint or 0
    for page in range(done, 5):
        await ctx.save(page + 1)
        if page == item.params.get("breaks"):
            raise OSError("no route")
    return {"from": done}

@handler("crawl-plain", every="1d", retries=1, backoff="1h")
def crawl_plain(item, ctx):
    done = ctx.checkpoint or 0
    for page in range(done, 5):
        ctx.save(page + 1)
        if page == item.params.get("breaks"):
            raise OSError("no route")
    return {"from": done}
"""


@pytest.fixture(name="crawl", params=["crawl"])
def _crawl(request: pytest.FixtureRequest, blackboard: CommandLine) -> CommandLine:
    """A crawler that has failed on its third page, in a run of this process."""
    add(blackboard, request.param)
    blackboard("run", "news", "--here", "--jobs", "jobs.py", code=1)
    return blackboard


def add(town: CommandLine, item_type: str) -> None:
    town.write(JOBS, "jobs.py")
    town("init")
    town("add", "news", "--type", item_type, "--set", "breaks=2")


def work(town: CommandLine) -> None:
    with open_blocking(town.store, handlers=["jobs.py"]) as board:
        board.worker().work("idle")


both = pytest.mark.parametrize("crawl", ["crawl", "crawl-plain"], indirect=True)


@pytest.mark.parametrize("item_type", ["crawl", "crawl-plain"])
def test_what_was_saved_is_shown_and_explained(blackboard: CommandLine, item_type: str) -> None:
    add(blackboard, item_type)
    work(blackboard)
    assert blackboard("show", "news", "--json").json[0]["checkpoint"] == 3
    (news,) = blackboard("why", "news", "--json").json
    assert news["facts"]["checkpoint"] == "3, where its next run goes on"


@pytest.mark.not_on_azurite
@pytest.mark.parametrize(
    ("said", "begins"), [(None, 3), ("", 0), ("null", 0), ("4", 4)], ids=["kept", "", "null", "4"]
)
def test_the_next_run_goes_on_there_or_where_an_operator_said(
    crawl: CommandLine, said: str | None, begins: int
) -> None:
    crawl("edit", "news", "--unset", "breaks")
    if said is not None:
        out = crawl("edit", "news", "--checkpoint", said).out
        assert f"checkpoint 3 -> {said if begins else '-'}" in out
    crawl("run", "news")
    work(crawl)
    shown = crawl("show", "news", "--json").json[0]
    assert (shown["result"], shown["checkpoint"]) == ({"from": begins}, None)


@both
@pytest.mark.not_on_azurite
def test_a_run_in_this_process_saves_too_and_goes_on(crawl: CommandLine) -> None:
    crawl("edit", "news", "--set", "breaks=3")
    crawl("run", "news", "--here", "--jobs", "jobs.py", code=1)
    assert crawl("show", "news", "--json").json[0]["checkpoint"] == 4
    crawl("edit", "news", "--unset", "breaks")
    crawl("run", "news", "--here", "--jobs", "jobs.py")
    shown = crawl("show", "news", "--json").json[0]
    assert (shown["result"], shown["checkpoint"]) == ({"from": 4}, None)


@both
@pytest.mark.not_on_azurite
@pytest.mark.parametrize("text", ["{", "[" * 5_000 + "]" * 5_000])
def test_what_other_software_wrote_fails_its_run_alone(crawl: CommandLine, text: str) -> None:
    crawl("run", "news")
    with closing(sqlite3.connect(crawl.folder / crawl.store)) as connection, connection:
        changed = connection.execute(
            "UPDATE rows SET data = json_set(data, '$.checkpoint', ?)"
            " WHERE key LIKE 'item:%' OR key LIKE 'next:%'",
            [text],
        )
        assert changed.rowcount == 2
    work(crawl)
    shown = crawl("show", "news", "--json").json[0]
    assert shown["outcome"] == "failed"
    assert "checkpoint" in shown["error"]
    assert "where its next run goes on" in crawl("why", "news").out
    assert crawl("doctor").out.startswith("clean: ")


@pytest.mark.not_on_azurite
def test_params_of_one_run_begin_anew(crawl: CommandLine) -> None:
    crawl("run", "news", "--set", "breaks=9")
    work(crawl)
    assert crawl("show", "news", "--json").json[0]["result"] == {"from": 0}


@pytest.mark.not_on_azurite
def test_an_edit_to_what_it_is_changes_nothing(crawl: CommandLine) -> None:
    assert "is as it was" in crawl("edit", "news", "--checkpoint", "3").out


def test_a_checkpoint_may_hold_what_a_handler_may_save(crawl: CommandLine) -> None:
    crawl("edit", "news", "--checkpoint", '{"cursor": null, "left": [null, 3]}')
    kept = crawl("show", "news", "--json").json[0]["checkpoint"]
    assert kept == {"cursor": None, "left": [None, 3]}


@pytest.mark.not_on_azurite
def test_a_checkpoint_that_no_row_holds_is_refused(crawl: CommandLine) -> None:
    (crawl.folder / "long.txt").write_text("x" * 40_000)
    said = crawl.refused("edit", "news", "--checkpoint", "@long.txt")
    assert said == "checkpoint: it is 40,002 characters of JSON (at most 32,768 can be kept)"


def test_a_checkpoint_steers_no_terminal(blackboard: CommandLine) -> None:
    add(blackboard, "crawl")
    said = blackboard("edit", "news", "--checkpoint", '"\x9b31m"').out
    assert "\\x9b31m" in said
    assert "\x9b" not in said
