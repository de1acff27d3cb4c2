"""The plan of `apply`: what is added, changed, removed, and what is left as it is."""

from datetime import UTC, datetime
from typing import Any

import pytest

from blackboard.cli.apply import clashes, differences, make_plan
from blackboard.model import Item, State
from blackboard.settings import ItemTable
from blackboard.spec import Spec, encode_spec

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def there(item_id: str, spec: Spec, item_type: str = "t") -> Item:
    return Item(
        id=item_id,
        type=item_type,
        state=State.ACTIVE,
        spec=encode_spec(spec),
        slot=NOON,
        ready=NOON,
        planned=NOON,
    )


def board(*items: Item) -> dict[str, Item]:
    return {item.id: item for item in items}


def declared(item_id: str, **said: Any) -> ItemTable:
    return ItemTable(id=item_id, type="t", **said)


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
    plan = make_plan(wanted, now, prune=True)
    assert list(plan.lines()) == [
        "+ new (t)",
        "~ other: every: 8h -> unset; cron: unset -> @daily",
        "- old (t)",
        "1 to add, 1 to change, 1 to remove, 1 unchanged",
    ]
    assert plan.record() == {
        "add": [{"id": "new", "type": "t"}],
        "change": [
            {
                "id": "other",
                "differences": [
                    {"field": "every", "old": "8h", "new": None},
                    {"field": "cron", "old": None, "new": "@daily"},
                ],
            }
        ],
        "remove": [{"id": "old", "type": "t"}],
        "unchanged": 1,
    }


def test_without_prune_nothing_is_removed() -> None:
    plan = make_plan([declared("a")], board(there("a", Spec()), there("b", Spec())), prune=False)
    assert plan.steps == 0
    assert list(plan.lines()) == ["nothing to do: 1 item as declared"]


def test_first_is_for_new_items_alone() -> None:
    plan = make_plan([declared("a", first="next")], board(there("a", Spec())), prune=False)
    assert plan.steps == 0


def test_an_item_of_another_type_clashes() -> None:
    now = board(there("a", Spec()), there("b", Spec(), "other"))
    found = clashes([declared("a"), declared("b"), declared("c")], now)
    assert [(number, item.id) for number, item in found] == [(1, "b")]


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
