"""`apply` and its plan of additions, changes and removals; `export`, the file of a board."""

import json
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from blackboard.cli.declarations import Declaration, ItemFile
from blackboard.cli.plan import ApplyPlan, differences, make_plan
from blackboard.model import Item, Mark, State
from blackboard.protocol import additions, edits
from blackboard.protocol.additions import New, add
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import item_key
from blackboard.protocol.rename import rename
from blackboard.schedule.words import NO_SCHEDULE
from blackboard.settings import ItemTable, Settings, resolver
from blackboard.spec import Spec, decode_spec, encode_spec, resolve
from blackboard.table import ANY, Merge, Unavailable
from tests.cli.command_line import CommandLine, blackboard, piped
from tests.support.clocks import START
from tests.support.faults import Fault, FaultyTable

pytestmark = pytest.mark.of_one_store("files are compared with items above the store")

__all__ = ["blackboard"]

FILE = """
[types.calendars]
every = "8h"

[[items]]
id = "davis"
type = "calendars"
params = { feeds = ["https://example.org/a.ics"], out = "out" }

[[items]]
id = "two\\nlines"
type = "calendars"
cron = "0 3 * * *"
timezone = "Europe/Berlin"
first = "next"
"""


def test_apply_makes_what_is_declared_and_then_has_nothing_to_do(blackboard: CommandLine) -> None:
    blackboard.write(FILE)
    first, two, counts = blackboard("apply").out.splitlines()
    assert first == "+ davis (calendars): due now"
    assert two.startswith("+ two\\nlines (calendars): first ")
    assert counts == "2 to add, 0 to change, 0 to remove, 0 unchanged"
    davis = blackboard.item("davis")
    assert decode_spec(davis.spec).params == {"feeds": ["https://example.org/a.ics"], "out": "out"}
    assert davis.schedule == "every 8h"
    assert blackboard.item("two\nlines").ready.minute == 0
    before = blackboard.rows()
    assert blackboard("apply").out == "nothing to do: 2 items as declared\n"
    assert blackboard.rows() == before


def test_a_file_of_items_alone_leaves_the_settings_to_the_usual_one(
    blackboard: CommandLine,
) -> None:
    blackboard.write('[board]\nname = "towns"\n[types.calendars]\nevery = "3h"\n')
    blackboard.write('[[items]]\nid = "davis"\ntype = "calendars"\n', "items.toml")
    blackboard("apply", "items.toml")
    assert blackboard.item("davis").schedule == "every 3h"
    assert blackboard("show", "--board", "towns", "--json").json[0]["id"] == "davis"
    blackboard.write(FILE, "whole.toml")
    blackboard("apply", "whole.toml")
    assert blackboard("show", "--board", "blackboard", "--json").json[0]["schedule"] == "every 8h"


@pytest.mark.of_each_store
def test_apply_changes_what_differs_and_removes_only_with_prune(blackboard: CommandLine) -> None:
    blackboard.write(FILE)
    blackboard("apply")
    blackboard("add", "other", "--type", "calendars")
    blackboard.write(FILE.replace('out = "out"', 'out = "new"'))
    assert blackboard("apply").out.splitlines() == [
        "~ davis: params.out: out -> new",
        "0 to add, 1 to change, 0 to remove, 1 unchanged",
    ]
    assert decode_spec(blackboard.item("davis").spec).params["out"] == "new"
    said = blackboard("apply", "--prune")
    assert said.out == "nothing to do: 2 items as declared\n"
    assert "1 item of other files, or added by hand: left alone" in said.err
    blackboard.write(FILE[: FILE.index('[[items]]\nid = "two')])
    assert "0 to remove" in blackboard("apply").out
    assert len(blackboard.ids()) == 3
    told = blackboard.refused("apply", "--prune")
    assert told.startswith("prune: this would remove 1 item: two\\nlines (say so with --yes")
    assert (
        blackboard("apply", "--prune", "--yes").out.splitlines()[0] == "- two\\nlines (calendars)"
    )
    assert blackboard.ids() == ["davis", "other"]


def items(*ids: str) -> str:
    return "\n".join(f'[[items]]\nid = "{one}"\ntype = "calendars"\n' for one in ids)


def test_prune_touches_only_what_the_file_declared(blackboard: CommandLine) -> None:
    blackboard.write(items("ann", "ben"), "one.toml")
    blackboard.write(items("cleo", "dan"), "two.toml")
    assert "4 to add" in blackboard("apply", "one.toml", "two.toml").out
    blackboard.write(items("ann"), "one.toml")
    blackboard("apply", "one.toml", "--prune", "--yes")
    assert blackboard.ids() == ["ann", "cleo", "dan"]
    blackboard.write(items("cleo"), "two.toml")
    blackboard("apply", "one.toml", "--prune", "--yes")
    assert blackboard.ids() == ["ann", "cleo", "dan"], "another file's"
    blackboard("apply", "one.toml", "two.toml", "--prune", "--yes")
    assert blackboard.ids() == ["ann", "cleo"]


def test_an_item_that_moves_to_another_file_belongs_to_that(blackboard: CommandLine) -> None:
    blackboard.write(items("ann", "ben"), "one.toml")
    blackboard("apply", "one.toml")
    blackboard.write(items("ben"), "two.toml")
    assert "~ ben: declared by: " in blackboard("apply", "two.toml").out
    blackboard.write(items("ann"), "one.toml")
    blackboard("apply", "one.toml", "--prune")
    assert blackboard.ids() == ["ann", "ben"]


def test_a_file_that_was_moved_hides_no_other_change(blackboard: CommandLine) -> None:
    """All its items belong to another path then."""
    many = [f"town-{number}" for number in range(7)]
    blackboard.write(items(*many), "one.toml")
    blackboard("apply", "one.toml")
    blackboard.write(items(*many) + "retries = 2\n", "two.toml")
    changed, moved, numbers = blackboard("apply", "two.toml").out.splitlines()
    assert changed.startswith("~ town-6: retries: unset -> 2; declared by: ")
    assert moved.startswith("~ town-0, town-1, town-2, town-3, town-4 and 1 more: declared by: ")
    assert "one.toml -> " in moved
    assert "two.toml (--source NAME " in moved
    assert numbers == "0 to add, 7 to change, 0 to remove, 0 unchanged"
    assert "nothing to do" in blackboard("apply", "two.toml").out


def test_an_item_that_moves_to_or_from_a_source_needs_no_other(blackboard: CommandLine) -> None:
    blackboard.write(items("ann"), "one.toml")
    blackboard("apply", "one.toml")
    assert "NAME" not in blackboard("apply", "one.toml", "--source", "towns").out
    assert "NAME" not in blackboard("apply", "one.toml", "--source", "others").out
    assert "declared by: others -> /" in (said := blackboard("apply", "one.toml").out)
    assert "NAME" not in said


def test_files_in_several_places_have_a_source(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a file is checked out anew each time, or written by a program."""
    blackboard.write(items("ann", "ben"), "one.toml")
    blackboard("apply", "one.toml", "--source", "towns")
    assert blackboard.item("ben").declared_by == "towns"
    monkeypatch.setattr("sys.stdin", piped(items("ann")))
    assert "--source" in blackboard("apply", "-", "--prune", code=2).err
    monkeypatch.setattr("sys.stdin", piped(items("ann")))
    said = blackboard("apply", "-", "--prune", "--yes", "--source", "towns").out
    assert said.splitlines()[0] == "- ben (calendars)"
    for text in ("\n", "# made by a program\n", "[board]\n"):  # of one that has failed
        monkeypatch.setattr("sys.stdin", piped(text))
        assert blackboard.refused("apply", "-", "--prune", "--yes", "--source", "towns") == (
            "file: <stdin> declares no items, and --prune would remove all items of towns "
            "(see why; `items = []` says that there are to be none)"
        )
    assert blackboard.ids() == ["ann"]
    monkeypatch.setattr("sys.stdin", piped(items("cleo") + "every = 5"))
    assert "<stdin>:4: it is a whole number" in blackboard("apply", "-", code=2).err


def test_items_of_a_file_whose_path_is_no_utf_8_need_a_source(blackboard: CommandLine) -> None:
    """The path would stand in their rows."""
    blackboard.write(items("ann"), "towns\udcff.toml")
    said = blackboard.refused("apply", "towns\udcff.toml")
    assert re.fullmatch(r"source: '.*' is not UTF-8 text \(.*by --source NAME\)", said)
    blackboard("apply", "towns\udcff.toml", "--source", "towns")
    assert blackboard.item("ann").declared_by == "towns"


def test_a_file_that_has_no_items_may_say_so(blackboard: CommandLine) -> None:
    blackboard.write(items("ann"), "one.toml")
    blackboard("apply", "one.toml")
    blackboard.write("items = []\n", "one.toml")
    assert blackboard("apply", "one.toml", "--prune", "--yes").out.startswith("- ann (calendars)")


def test_the_standard_input_is_read_as_a_file_is(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", piped(b"\xef\xbb\xbf" + items("ann").encode()))
    blackboard("apply", "-")
    monkeypatch.setattr("sys.stdin", piped(b"# caf\xe9\n"))
    assert blackboard.refused("apply", "-") == "stdin: it is not UTF-8 text (give it as UTF-8)"


def test_a_file_is_named_once(blackboard: CommandLine) -> None:
    assert blackboard.refused("apply", "-", "-") == "file: - is given twice (name it once)"


def test_a_file_behind_a_link_is_the_same_file_after_a_deployment(blackboard: CommandLine) -> None:
    for release, ids in (("1", ("ann", "ben")), ("2", ("ann",))):
        blackboard.write(items(*ids), f"releases/{release}/towns.toml")
        current = blackboard.folder / "current"
        current.unlink(missing_ok=True)
        current.symlink_to(blackboard.folder / "releases" / release)
        said = blackboard("apply", "current/towns.toml", "--prune", "--yes").out
    assert said.splitlines()[0] == "- ben (calendars)"
    assert blackboard.ids() == ["ann"]


def test_another_zone_of_a_type_is_a_change(blackboard: CommandLine) -> None:
    blackboard.write('[types.rep]\ncron = "0 3 * * *"\n')
    blackboard("add", "a", "--type", "rep")
    slot = blackboard.item("a").slot
    blackboard.write('[types.rep]\ncron = "0 3 * * *"\ntimezone = "Asia/Tokyo"\n')
    assert "timezone: UTC -> Asia/Tokyo" in " ".join(blackboard("apply").out.split())
    after = blackboard.item("a")
    assert (after.timezone, after.slot.hour, slot.hour) == ("Asia/Tokyo", 18, 3)
    assert "nothing to do" in blackboard("apply").out


def test_another_calendar_is_another_schedule(blackboard: CommandLine) -> None:
    """And what was planned by the one before is no work of a wrong clock."""
    today = datetime.now(UTC).date()
    blackboard.write(f'[calendars]\ndays = ["{today}..{today + timedelta(days=20)}"]\n')
    blackboard("add", "a", "--type", "hello", "--cron", "0 9 * * *", "--blackout", "days")
    assert blackboard.item("a").slot.date() == today + timedelta(days=21)
    shown = blackboard("show", "a", "--json").out
    blackboard.write('[calendars]\ndays = ["01-01"]\n')
    assert "clock" not in blackboard("doctor").out
    assert blackboard("apply").out.startswith("~ a: schedule: cron 0 9 * * * (not days[")
    assert blackboard.item("a").slot.date() <= today + timedelta(days=2)
    assert '"cron 0 9 * * * (not days)"' in shown, "its windows are for the row alone"


def test_two_files_do_not_declare_one_item_nor_have_settings_both(blackboard: CommandLine) -> None:
    blackboard.write(items("ann"), "one.toml")
    blackboard.write(items("ben", "ann"), "two.toml")
    told = blackboard.refused("apply", "one.toml", "two.toml")
    assert told == "id: two.toml:6: 'ann' is declared in one.toml, too (declare it once)"
    blackboard.write('[board]\nname = "a"\n', "three.toml")
    blackboard.write('[board]\nname = "b"\n', "four.toml")
    assert "have settings" in blackboard.refused("apply", "three.toml", "four.toml")


class Terminal(StringIO):
    """A standard input with what a person answers."""

    def isatty(self) -> bool:
        return True


def test_at_a_terminal_prune_asks(blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    blackboard.write(items("ann", "ben"))
    blackboard("apply")
    blackboard.write(items("ann", "cleo"))
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    said = blackboard("apply", "--prune", code=1)
    assert (said.out + said.err).count("- ben (calendars)") == 1
    assert "Remove 1 item (ben), and do the rest?" in said.err
    assert "nothing was changed" in said.err
    assert blackboard.ids() == ["ann", "ben"]
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    said = blackboard("apply", "--prune")
    assert (said.out + said.err).count("- ben (calendars)") == 1
    assert blackboard.ids() == ["ann", "cleo"]


def test_programs_get_the_plan_after_the_answer(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    blackboard.write(items("ann", "ben"))
    blackboard("apply")
    blackboard.write(items("ann"))
    for answer, code in ("n", 1), ("y", 0):
        monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
        said = blackboard("apply", "--prune", "--json", code=code)
        assert said.err.index("- ben (calendars)") < said.err.index("Remove 1 item (ben)")
        removed = [one["id"] for one in said.json["remove"]] if said.out else []
        assert removed == ["ben"] * (answer == "y")


def test_a_new_plan_is_shown_before_it_is_asked_again(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    blackboard.write(items("ann", "ben", "cleo"))
    blackboard("apply")
    blackboard.write(items("ann"))
    remove = edits.remove

    async def removes(board: BoardTable, _item_id: str, **_about: Any) -> Any:
        await remove(board, "ben")
        return await remove(board, "ben")

    monkeypatch.setattr(edits, "remove", removes)
    monkeypatch.setattr("sys.stdin", Terminal("y\nn\n"))
    said = blackboard("apply", "--prune", code=1)
    assert "2 to remove" in said.out
    assert "Remove 1 item (cleo), and do the rest?" in said.err
    assert said.out.endswith(
        "- cleo (calendars)\n0 to add, 0 to change, 1 to remove, 1 unchanged\n"
    )
    assert blackboard.ids() == ["ann", "cleo"]


def test_a_new_default_of_a_type_moves_its_items(blackboard: CommandLine) -> None:
    """Those of the file and those that were added by hand; once."""
    blackboard.write(FILE)
    blackboard("apply")
    blackboard("add", "keene", "--type", "calendars")
    blackboard.write(FILE.replace('"8h"', '"4h"'))
    assert blackboard("apply").out.splitlines() == [
        "~ davis: schedule: every 8h -> every 4h",
        "~ keene: schedule: every 8h -> every 4h",
        "0 to add, 2 to change, 0 to remove, 1 unchanged",
    ]
    assert blackboard.item("davis").schedule == "every 4h"
    assert blackboard.item("keene").schedule == "every 4h"
    assert blackboard("apply").out == "nothing to do: 2 items as declared\n"


def test_a_type_without_its_schedule_moves_its_items(blackboard: CommandLine) -> None:
    """As a worker does that has the same handler: they run once more."""
    jobs = '[board]\njobs = ["shell"]\n'
    blackboard.write(f'{jobs}[types.shell]\nevery = "4h"\n')
    blackboard("add", "ann", "--type", "shell", "--set", "command=['true']")
    blackboard.finish(blackboard.start("ann"))
    blackboard.write(jobs)
    assert "none: it runs once" in blackboard("why", "ann").out
    assert blackboard("next", "ann").out.splitlines()[0].endswith(NO_SCHEDULE)
    assert blackboard("apply").out.splitlines()[0] == "~ ann: schedule: every 4h -> unset"
    assert blackboard.item("ann").schedule == ""
    assert "nothing to do" in blackboard("apply").out


@pytest.mark.of_each_store
def test_what_others_add_and_remove_meanwhile_is_planned_anew(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when all hosts of a deployment apply the file at the same moment."""
    blackboard.write(items("leaves", "stays"))
    blackboard("apply")
    blackboard.write(items("stays", "comes", "is new"))
    add_many, remove = additions.add_many, edits.remove

    async def adds(board: BoardTable, new: Any, **about: Any) -> Any:
        if not await board.existing("comes"):
            await add(board, New(id="comes", type="calendars", spec=Spec(every="2h")))
        return await add_many(board, new, **about)

    async def removes(board: BoardTable, item_id: str, **about: Any) -> Any:
        await remove(board, item_id)
        return await remove(board, item_id, **about)

    with monkeypatch.context() as patch:
        patch.setattr(additions, "add_many", adds)
        patch.setattr(edits, "remove", removes)
        said = blackboard("apply", "--prune", "--yes")
    assert said.out.endswith("2 to add, 0 to change, 1 to remove, 1 unchanged\n")
    assert said.err == (
        "blackboard: others have added or removed items meanwhile; done here: 1 added, 1 changed\n"
    )
    assert blackboard.ids() == ["comes", "is new", "stays"]
    assert blackboard.item("comes").schedule == blackboard.item("stays").schedule
    assert blackboard("apply").out == "nothing to do: 3 items as declared\n"


@pytest.mark.parametrize(
    ("data", "named", "remedy"),
    [({"fence": "high"}, "cannot be read", "doctor"), ({"version": 2}, "newer version", "upgrade")],
)
def test_a_row_in_the_way_of_an_addition_is_named_and_the_rest_is_applied(
    blackboard: CommandLine, data: Any, named: str, remedy: str
) -> None:
    blackboard.write(items("ben"))
    blackboard("apply")
    blackboard("rm", "ben", "--yes")
    merge(blackboard, "ben", data)
    blackboard.write(items("ann", "ben", "cleo"))
    said = blackboard("apply", code=2)
    assert "+ ben" not in said.out
    assert "2 to add, 0 to change, 0 to remove, 0 unchanged" in said.out
    assert said.err.count("warning: ben is left as it is: ") == 1
    assert named in said.err
    assert remedy in said.err
    assert blackboard.ids() == ["ann", "cleo"]
    dry = blackboard("apply", "--dry-run", code=2)
    assert dry.err == said.err
    assert blackboard("apply", code=2).out == "nothing to do: 2 items as declared\n"


def test_one_that_cannot_be_changed_is_named_and_the_rest_is_changed(
    blackboard: CommandLine,
) -> None:
    blackboard.write(items("ann", "ben", "cleo", "old"))
    blackboard("apply")
    for one in ("ben", "old"):
        merge(blackboard, one, {"version": 2})
    changed = [f"{items(one)}every = '2h'\n" for one in ("ann", "ben", "cleo")]
    blackboard.write("\n".join(changed))
    said = blackboard("apply", "--prune", "--yes", code=2)
    assert said.err.count("is left as it is: ") == 2
    assert "warning: ben is left as it is: id: 'ben' was written by a newer version" in said.err
    assert "warning: old is left as it is: id: 'old' was written by a newer version" in said.err
    assert {one: blackboard.item(one).schedule for one in ("ann", "cleo")} == {
        "ann": "every 2h",
        "cleo": "every 2h",
    }


def test_programs_get_what_was_done_and_what_was_left(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a second plan has done the rest."""
    blackboard.write(items("ann", "ben"))
    blackboard("apply")
    merge(blackboard, "ben", {"version": 2})
    blackboard.write("\n".join(f"{items(one)}every = '2h'\n" for one in ("ann", "ben", "cleo")))
    add_many = additions.add_many

    async def adds(board: BoardTable, new: Any, **about: Any) -> Any:
        if not await board.existing("cleo"):
            await add(board, New(id="cleo", type="calendars", spec=Spec(every="9h")))
        return await add_many(board, new, **about)

    monkeypatch.setattr(additions, "add_many", adds)
    record = blackboard("apply", "--json", code=2).json
    assert record["add"] == []
    assert sorted(one["id"] for one in record["change"]) == ["ann", "cleo"]
    assert list(record["left"]) == ["ben"]
    assert "newer version" in record["left"]["ben"]


def test_programs_get_what_was_done_before_an_error(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("ann", "ben", "cleo")
    blackboard.write(items(*names))
    blackboard("apply")
    blackboard.write("\n".join(f"{items(one)}every = '2h'\n" for one in names))
    edit = edits.edit

    async def edits_two(board: BoardTable, item_id: str, *about: Any, **more: Any) -> Any:
        if item_id == "cleo":
            raise Unavailable("cable cut")
        return await edit(board, item_id, *about, **more)

    monkeypatch.setattr(edits, "edit", edits_two)
    said = blackboard("apply", "--json", code=3)
    assert sorted(one["id"] for one in said.json["change"]) == ["ann", "ben"]
    assert "changing: 2 of 3 are done" in said.err


def test_one_that_is_being_renamed_is_named_and_the_rest_is_changed(
    blackboard: CommandLine,
) -> None:
    """The rename is killed before it removes the old one."""
    blackboard.write(items("ann", "ben", "old"))
    blackboard("apply")

    async def killed(board: BoardTable) -> None:
        table = FaultyTable(board.table)
        mark = Mark(by="ann", at=await board.table.now())
        table.script(Fault.NONE, Fault.NONE, Fault.AWAY)
        with pytest.raises(Unavailable):
            await rename(board.using(table), "old", "new", mark)

    blackboard.on_board(killed)
    blackboard.write("\n".join(f"{items(one)}every = '2h'\n" for one in ("ann", "new", "ben")))
    said = blackboard("apply", code=2)
    words = "new is left as it is: new is being renamed: `blackboard rename old new` finishes it"
    assert words in " ".join(said.err.split())
    assert {blackboard.item(one).schedule for one in ("ann", "ben")} == {"every 2h"}


def merge(blackboard: CommandLine, item_id: str, data: Any) -> None:
    """Write columns into the row of an item, as another program does."""

    async def write(board: BoardTable) -> None:
        ops = [Merge(item_key(item_id), data, ANY)]
        await board.table.commit(board.partition(item_id), ops)

    blackboard.on_board(write)


def test_prune_leaves_what_belongs_to_another_file_by_the_time_of_the_answer(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    blackboard.write(items("moves", "goes"))
    blackboard("apply")
    blackboard.write("items = []\n")
    remove = edits.remove

    async def moves(board: BoardTable, item_id: str, **about: Any) -> Any:
        await edits.edit(board, "moves", lambda spec, _: spec, declared_by="another.toml")
        return await remove(board, item_id, **about)

    with monkeypatch.context() as patch:
        patch.setattr(edits, "remove", moves)
        said = blackboard("apply", "--prune", "--yes")
    assert "2 to remove" in said.out
    assert "warning: not removed, as others have declared them by now: moves\n" in said.err
    assert blackboard.ids() == ["moves"]


def test_apply_and_add_say_the_same_first_time(blackboard: CommandLine) -> None:
    blackboard.write(items("ann").replace("calendars", "t") + 'cron = "0 3 * * *"\njitter = "6h"\n')
    first = blackboard("apply", "--dry-run", "--json").json["add"][0]["first"]
    added = blackboard("add", "ann", "--type=t", "--cron=0 3 * * *", "--jitter=6h", "--json").json
    assert first == added[0]["ready"]


def test_export_tells_what_would_run_again(blackboard: CommandLine) -> None:
    blackboard("add", "ann", "--type", "t", "--at", "2020-01-01T00:00")
    blackboard("add", "ben", "cleo", "dan", "--type", "t", "--every", "1h")
    blackboard.finish(blackboard.start("ann"))
    blackboard("pause", "ben", "cleo")
    would = "would run on a board that this is applied to"
    for form in ([], ["--json"]):
        done, paused = blackboard("export", *form).err.splitlines()
        assert done == f"blackboard: warning: 1 item is done and {would}: ann"
        assert paused == f"blackboard: warning: 2 items are paused and {would}: ben, cleo"
    assert blackboard("export", "dan").err == ""


def test_a_dry_run_changes_nothing(blackboard: CommandLine) -> None:
    gone = '[[items]]\nid = "gone"\ntype = "calendars"\n'
    file = blackboard.write(gone, "towns.toml")
    blackboard("apply", str(file))
    blackboard.write(FILE, "towns.toml")
    before = blackboard.rows()
    said = blackboard("apply", str(file), "--dry-run", "--prune")
    assert said.out.splitlines()[-2:] == [
        "2 to add, 0 to change, 1 to remove, 0 unchanged",
        "dry run: nothing was changed",
    ]
    assert blackboard.rows() == before
    record = blackboard("apply", str(file), "--dry-run", "--json").json
    assert (record["add"][0]["id"], record["add"][0]["type"]) == ("davis", "calendars")
    assert record["add"][0]["first"].endswith("Z")
    assert record["dry_run"] is True


@pytest.mark.of_each_store
def test_a_dry_run_without_a_board_makes_none(blackboard: CommandLine) -> None:
    blackboard.write(FILE)
    assert "2 to add" in blackboard("apply", "--dry-run").out
    assert blackboard.rows() == []
    blackboard("--board", "other", "init")
    before = blackboard.rows()
    assert "2 to add" in blackboard("apply", "--dry-run").out
    assert blackboard.rows() == before


@pytest.mark.parametrize(
    ("place", "code", "problem"),
    [
        ("none/b.db", 2, "no folder .*none"),
        ("empty.db", 2, "is empty, not a board"),
        ("azurite://127.0.0.1:1/town", 3, "cannot connect to 127.0.0.1:1"),
    ],
)
def test_a_dry_run_is_refused_where_no_board_could_be_made(
    blackboard: CommandLine, place: str, code: int, problem: str
) -> None:
    blackboard.write(FILE)
    blackboard.write("", "empty.db")
    said = blackboard("--store", place, "apply", "--dry-run", code=code)
    assert said.out == ""
    assert re.search(problem, said.err), said.err


def test_a_paused_item_stays_paused(blackboard: CommandLine) -> None:
    blackboard.write(FILE)
    blackboard("apply")
    blackboard("pause", "davis")
    blackboard("apply")
    blackboard.write(FILE.replace('out = "out"', 'out = "new"'))
    blackboard("apply")
    assert blackboard.item("davis").state is State.PAUSED


@pytest.mark.cases_of_one_store("files are checked above the store")
@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ('[[items]]\nid = "x"\ntype = "t"\ncron = "0 0 31 2 *"', "cron: blackboard.toml:20: "),
        ('[[items]]\nid = "davis"\ntype = "t"', "id: blackboard.toml:18: 'davis' is declared"),
        ('[[items]]\nid = "x"\ntyp = "t"', "typ: blackboard.toml:19: there is no such setting"),
        ('[[items]]\nid = "x"\ntype = "t"\nfirst = "next"', "first: blackboard.toml:20: "),
        ('[[items]]\nid = "x"\ntype = "t"\nfirst = "soon"', "first: blackboard.toml:20: "),
        ('[[items]]\nid = "x"\ntype = "a,b"', "type: blackboard.toml:19: "),
        (
            f'[[items]]\nid = "x"\ntype = "t"\nparams.text = "{"x" * (1 << 20)}"',
            "params: blackboard.toml:20: they are 1,048,587 bytes",
        ),
        ("[[items]]\nid = ", "config: blackboard.toml:18: "),
    ],
)
def test_one_bad_item_refuses_the_file_with_its_line(
    blackboard: CommandLine, bad: str, problem: str
) -> None:
    blackboard("init")
    file = blackboard.write(FILE + "\n" + bad + "\n")
    told = blackboard.refused("apply", file.name)
    assert told.replace(f"{blackboard.folder}/", "").startswith(problem)


def test_an_item_of_another_type_refuses_the_file(blackboard: CommandLine) -> None:
    blackboard("add", "davis", "--type", "shell")
    blackboard.write(FILE)
    told = blackboard.refused("apply")
    assert told == (
        "type: blackboard.toml:7: 'davis' is on the board with the type 'shell' "
        "(`blackboard edit --type calendars davis` first)"
    )


def test_without_a_file_there_is_nothing_to_apply(blackboard: CommandLine) -> None:
    assert blackboard.refused("apply").startswith("config: ")
    assert blackboard.refused("apply", "absent.toml").startswith("file: ")


@pytest.mark.of_each_store
def test_what_is_exported_is_applied_to_the_same_items(blackboard: CommandLine) -> None:
    blackboard(
        *("add", 'quote"d', "new\nline", "\N{GRINNING FACE}", "--type", "calendars"),
        *("--every", "8h", "--retries", "2", "--set", 'deep={"a b": [1, 2.5, true, {"c": ""}]}'),
        *("--set", 'text=one\ntwo \\ "three"'),
    )
    blackboard("add", "bare", "--type", "shell", "--rrule", "FREQ=DAILY")
    said = blackboard("export").out
    assert len(tomllib.loads(said)["items"]) == 4
    file = blackboard.write(said, "items.toml")
    assert ": declared by: unset -> /" in blackboard("apply", str(file)).out
    assert blackboard("apply", str(file)).out == "nothing to do: 4 items as declared\n"
    blackboard("--board", "copy", "init", "--shards", "4")
    blackboard("--board", "copy", "apply", str(file))
    assert blackboard("--board", "copy", "export").out == said
    assert blackboard("--board", "copy", "apply", str(file), "--prune").out.startswith("nothing")


def test_a_first_time_that_is_to_come_is_exported(blackboard: CommandLine) -> None:
    blackboard("add", "later", "--type", "shell", "--every", "8h", "--first", "2030-01-01T00:00")
    blackboard("add", "now", "--type", "shell", "--every", "8h")
    later, now = blackboard("export", "later", "now", "--json").json
    assert (later["first"], "first" in now) == ("2030-01-01T00:00:00.000Z", False)
    file = blackboard.write(blackboard("export").out, "items.toml")
    blackboard("--board", "copy", "apply", str(file))
    assert "2030-01-01T00:00:00Z" in blackboard("--board", "copy", "next", "later").out
    blackboard("run", "later")  # before the first time, which stays
    assert "first" in blackboard("export", "later", "--json").json[0]


def test_export_of_some_items_and_for_programs(blackboard: CommandLine) -> None:
    blackboard("add", "davis", "dayton", "other", "--type", "calendars", "--every", "8h")
    assert blackboard("export", "da*", "--json").json == [
        {"id": "davis", "type": "calendars", "every": "8h"},
        {"id": "dayton", "type": "calendars", "every": "8h"},
    ]
    assert blackboard("export", "other").out == (
        '[[items]]\nid = "other"\ntype = "calendars"\nevery = "8h"\n'
    )
    assert decode_spec(blackboard.item("other").spec) == Spec(every="8h")


async def damage(board: BoardTable) -> None:
    spoiled = Merge(item_key("davis"), {"spec": '{"retries": "many"}'}, ANY)
    await board.table.commit(board.partition("davis"), [spoiled])


@pytest.mark.parametrize("args", [["apply"], ["edit", "davis", "--every", "1h"]])
def test_a_damaged_spec_is_told_in_one_line(blackboard: CommandLine, args: list[str]) -> None:
    blackboard.write(FILE)
    blackboard("apply")
    blackboard.on_board(damage)
    assert blackboard(*args, code=1).err.startswith("blackboard: the spec of 'davis' cannot be")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_damaged_spec_is_left_out_of_an_export(blackboard: CommandLine, form: list[str]) -> None:
    blackboard("init")
    blackboard("add", "davis", "keene", "--type", "t")
    whole = blackboard("export", "keene", *form).out
    blackboard.on_board(damage)
    said = blackboard("export", *form, code=1)
    assert said.out == whole
    assert said.err.startswith("blackboard: warning: davis is left out: its spec cannot be read: ")


def test_an_item_of_others_that_cannot_be_computed_is_left_alone_and_named(
    blackboard: CommandLine,
) -> None:
    blackboard.write('[calendars]\nhol = ["2027-03-30"]\n')
    blackboard("init")
    blackboard("add", "x", "--type", "t", "--every", "1h", "--blackout", "hol")
    blackboard.write("")
    blackboard.write('[[items]]\nid = "y"\ntype = "t"\n', "y.toml")
    said = blackboard("apply", "y.toml")
    assert "x is left as it is: blackout: there is no calendar 'hol'" in said.err
    assert blackboard.ids() == ["x", "y"]
    assert "nothing to do" in blackboard("apply", "y.toml").out
    found = blackboard("doctor", "--json", code=1).json["findings"]
    assert [(one["code"], one["subject"]) for one in found] == [("D12", "x")]
    assert found[0]["problem"].startswith("no worker runs it: blackout: there is no calendar 'hol'")


UNDECLARED: dict[str, dict[str, object]] = {
    "params.x.y: null says nothing": {"params": {"x": {"y": None}}},
    "params.x: the number is too large": {"params": {"x": 2**63}},
    "description: it holds U+000A": {"description": "two\nlines"},
    "tags: 'a b' is not a tag": {"tags": ["a b"]},
    "retries: 1000000 is out of range": {"retries": 1_000_000},
    "timezone: there is no zone 'europe/vienna'": {"timezone": "europe/vienna"},
    "cron: an item has one schedule": {"cron": "0 3 * * *"},
    "jitter: '2h' is longer than the interval": {"jitter": "2h"},
    "every: it is empty": {"every": ""},
}
"""Specs of rows that `apply` would refuse, by what it would say."""


def test_what_apply_would_refuse_is_left_out_of_an_export_and_named(
    blackboard: CommandLine,
) -> None:
    blackboard("init")
    blackboard("add", "davis", *map(str, range(len(UNDECLARED))), "--type", "t")
    whole = blackboard("export", "davis").out

    async def write(board: BoardTable) -> None:
        for number, said in enumerate(UNDECLARED.values()):
            row = Merge(item_key(str(number)), {"spec": json.dumps({"every": "1h", **said})}, ANY)
            await board.table.commit(board.partition(str(number)), [row])

    blackboard.on_board(write)
    said = blackboard("export", code=1)
    assert said.out == whole
    for number, (line, why) in enumerate(zip(said.err.splitlines(), UNDECLARED, strict=True)):
        assert line.startswith(f"blackboard: warning: {number} is left out: {why}")
    as_json = blackboard("export", "--json", code=1)
    assert ([one["id"] for one in as_json.json], as_json.err) == (["davis"], said.err)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_export_names_what_a_newer_version_added(blackboard: CommandLine, form: list[str]) -> None:
    blackboard("init")
    blackboard("add", "davis", "--type", "t", "--every", "1h")

    async def write(board: BoardTable) -> None:
        row = Merge(item_key("davis"), {"spec": '{"every":"1h","colour":"red"}'}, ANY)
        await board.table.commit(board.partition("davis"), [row])

    blackboard.on_board(write)
    said = blackboard("export", *form)
    assert "davis is written without what a newer version added: colour" in said.err
    assert "colour" not in said.out


NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def there(item_id: str, spec: Spec, item_type: str = "t") -> Item:
    return Item(
        id=item_id,
        type=item_type,
        state=State.ACTIVE,
        spec=encode_spec(spec),
        schedule=resolve([spec]).text,
        slot=NOON,
        ready=NOON,
        planned=NOON,
    )


def board(*items: Item) -> dict[str, Item]:
    return {item.id: item for item in items}


def declared(item_id: str, **said: Any) -> Declaration:
    settings = Settings(items=[ItemTable(id=item_id, type="t", **said)])
    file = ItemFile(path=Path("items.toml"), text="", settings=settings, by="")
    return file.declarations[0]


def planned(
    wanted: Sequence[Declaration], there: Mapping[str, Item], *, prune: Collection[str] = ()
) -> ApplyPlan:
    return make_plan(wanted, there, prune=prune, resolve=resolver(Settings(), {}), now=START)


def test_the_plan_has_a_step_for_each_difference_and_no_other() -> None:
    now = board(
        there("same", Spec(every="8h", params={"a": 1, "b": 2})),
        there("other", Spec(every="8h", retries=2)),
        there("old", Spec()),
    )
    wanted = [
        declared("same", every="8h", params={"b": 2, "a": 1}),
        declared("other", cron="@daily", retries=2),
        declared("new"),
    ]
    plan = planned(wanted, now, prune={""})
    assert list(plan.lines()) == [
        "+ new (t): due now",
        "~ other: every: 8h -> unset; cron: unset -> @daily",
        "- old (t)",
        "1 to add, 1 to change, 1 to remove, 1 unchanged",
    ]
    assert plan.record() == {
        "add": [{"id": "new", "type": "t", "first": START}],
        "change": [
            {
                "id": "other",
                "differences": [
                    {"field": "every", "old": "8h", "new": None},
                    {"field": "cron", "old": None, "new": "@daily"},
                ],
                "ends": False,
            }
        ],
        "remove": [{"id": "old", "type": "t"}],
        "unchanged": 1,
        "over": {},
        "left": {},
    }


def test_the_plan_tells_when_what_it_adds_runs_first() -> None:
    plan = planned([declared("new", first="17h")], {})
    assert next(plan.lines()) == "+ new (t): first 2026-11-22 02:00:00Z (in 17h)"


def test_without_prune_nothing_is_removed() -> None:
    plan = planned([declared("a")], board(there("a", Spec()), there("b", Spec())))
    assert plan.steps == 0
    assert list(plan.lines()) == ["nothing to do: 1 item as declared"]


def test_first_is_for_new_items_alone() -> None:
    plan = planned([declared("a", first="next")], board(there("a", Spec())))
    assert plan.steps == 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ({}, {}, []),
        ({"a": 1}, {"a": True}, ["params.a: 1 -> true"]),
        ({"a": 1}, {"a": 1.0}, ["params.a: 1 -> 1.0"]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 2, "c": 2}}, ["params.a.b: 1 -> 2"]),
        ({"a": {"b": 1}}, {"a": 1}, ['params.a: {"b":1} -> 1']),
        ({"a": 1}, {"b": "\x1b[31m"}, ["params.a: 1 -> unset", r"params.b: unset -> \x1b[31m"]),
        ({"when": NOON}, {"when": "2026-11-21T12:00:00Z"}, []),
        ({"a": ["x" * 100]}, {}, ['params.a: ["' + "x" * 58 + "... -> unset"]),
    ],
)
def test_params_are_compared_key_by_key(
    old: dict[str, Any], new: dict[str, Any], words: list[str]
) -> None:
    found = differences(Spec(params=old), Spec(params=new))
    assert [one.words for one in found] == words


def test_what_is_exported_may_name_a_calendar_of_the_settings(blackboard: CommandLine) -> None:
    blackboard.write('[calendars]\nhol = ["01-01"]\n')
    blackboard("add", "davis", "--type", "hello", "--cron", "0 9 * * *", "--blackout", "hol")
    items = blackboard.write(blackboard("export").out, "items.toml")
    assert "0 to add, 1 to change" in blackboard("apply", str(items)).out  # declared by it
    assert blackboard("apply", str(items)).out == "nothing to do: 1 item as declared\n"
    items.write_text(items.read_text().replace("hol", "other"))
    assert blackboard.refused("apply", str(items)).startswith("blackout: ")
    blackboard.write("")
    done = blackboard("export")
    assert 'blackout = "hol"' in done.out
    assert "davis is written, but does not fit the settings here: blackout: " in done.err


def test_a_pipe_has_no_name_to_prune_by(blackboard: CommandLine) -> None:
    reads, writes = os.pipe()
    os.write(writes, b'[[items]]\nid = "davis"\ntype = "hello"\n')
    os.close(writes)
    try:
        said = blackboard.refused("apply", f"/dev/fd/{reads}", "--prune", "--yes")
    finally:
        os.close(reads)
    assert said.startswith("source: --prune needs a name for what is not a file")


OVER = """
[[items]]
id = "over"
type = "calendars"
every = "1h"
until = "2020-01-01"
"""
GOOD = """
[[items]]
id = "good"
type = "calendars"
every = "1h"
"""


def test_an_item_whose_end_has_passed_keeps_no_other_from_being_added(
    blackboard: CommandLine,
) -> None:
    file = blackboard.write(OVER + GOOD, "towns.toml")
    said = blackboard("apply", str(file))
    assert f"over is not added: until: {file}:6: it leaves no next time" in said.err
    assert blackboard.ids() == ["good"]
    assert blackboard("apply", str(file), "--json").json["over"].keys() == {"over"}


def test_what_is_refused_leaves_no_board(blackboard: CommandLine) -> None:
    file = blackboard.write(GOOD + 'first = "tomorow"', "towns.toml")
    assert "first" in blackboard("apply", str(file), code=2).err
    assert blackboard.rows() == []


def test_the_plan_says_which_items_end(blackboard: CommandLine) -> None:
    later = GOOD.replace('every = "1h"', 'cron = "0 3 * * *"')
    file = blackboard.write(later, "towns.toml")
    blackboard("apply", str(file))
    blackboard.write(later + 'blackout = "00:00-24:00"', "towns.toml")
    changed = blackboard("apply", str(file), "--dry-run", "--json").json["change"]
    assert [(one["id"], one["ends"]) for one in changed] == [("good", True)]
    said = blackboard("apply", str(file))
    assert "~ good: blackout: unset -> 00:00-24:00; it is done: nothing is due" in said.out
    assert blackboard.item("good").state is State.DONE


def test_settings_are_read_from_one_file(blackboard: CommandLine) -> None:
    usual = blackboard.write("[board]\nname = 'prod'\n")
    file = blackboard.write("[types.calendars]\ntimeout = '5m'\n" + GOOD, "towns.toml")
    said = blackboard("--config", str(usual), "apply", str(file), code=2)
    assert f"config: {usual} and {file} have settings" in said.err
    assert blackboard.rows() == []
    assert "blackboard.toml is passed over" in blackboard("apply", str(file)).err
    assert blackboard("--board", "blackboard", "show", "--json").json


@contextmanager
def pipe_of(text: str) -> Iterator[str]:
    """The path of a pipe with this text, as a shell writes `<(...)`. It can be read once."""
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as stream:
        stream.write(text)
    yield f"/dev/fd/{reads}"
    os.close(reads)


@pytest.mark.parametrize("file", ["-", "<(...)"])
def test_settings_that_can_be_read_once_say_which_board_is_meant(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """And those that are usual here say nothing of it."""
    blackboard.write("[board]\nname = 'usual'\n")
    text = "[board]\nname = 'prod'\n[types.calendars]\nevery = '5h'\n" + items("ann")
    monkeypatch.setattr("sys.stdin", piped(text))
    with pipe_of(text) as pipe:
        said = blackboard("apply", "-" if file == "-" else pipe)
    assert "blackboard.toml is passed over" in said.err
    (ann,) = blackboard("--board", "prod", "show", "--json").json
    assert (ann["id"], ann["schedule"]) == ("ann", "every 5h")
    assert "no board 'usual'" in blackboard("--board", "usual", "show", code=2).err


def test_settings_in_a_pipe_have_paths_from_the_current_folder(blackboard: CommandLine) -> None:
    with pipe_of("[board]\nname = 'prod'\n") as pipe:
        blackboard("--config", pipe, "init")
    assert blackboard("--board", "prod", "show").out.startswith("no items yet")


def test_an_item_whose_type_was_not_known_gets_its_schedule(blackboard: CommandLine) -> None:
    item = '[[items]]\nid = "davis"\ntype = "later"\n'
    blackboard("apply", str(blackboard.write(item, "towns.toml")))
    assert blackboard.item("davis").schedule == ""
    known = item + "[types.later]\nevery = '6h'\n"
    assert "schedule: unset -> every 6h" in blackboard("apply", str(blackboard.write(known))).out
    assert blackboard.item("davis").schedule == "every 6h"


def test_export_warns_of_what_is_done_and_would_run_again(blackboard: CommandLine) -> None:
    blackboard("add", "over", "at", "--type", "calendars", "--every", "1h", "--first", "5h")
    blackboard("edit", "over", "--until", "2020-01-01")
    blackboard("edit", "at", "--every", "", "--at", "2020-01-01T00:00Z")
    blackboard.finish(blackboard.start("at"))
    states = {one: blackboard.item(one).state for one in ("over", "at")}
    assert states == dict.fromkeys(states, State.DONE)
    said = blackboard("export").err
    assert "1 item is done and would run on a board that this is applied to: at" in said
    assert "over" not in said


def test_a_file_of_items_alone_is_no_other_settings(blackboard: CommandLine) -> None:
    usual = blackboard.write(GOOD)
    file = blackboard.write("[types.calendars]\ntimeout = '5m'\n" + OVER, "towns.toml")
    assert "passed over" not in blackboard("apply", str(file)).err
    blackboard("--config", str(usual), "apply", str(file))
    said = blackboard("--config", "missing.toml", "apply", str(file), code=2)
    assert said.err.startswith("blackboard: config: missing.toml: No such file")
