"""The dashboard and the alerts ask for metrics that there are, with labels that they have."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from tests.deploy.files import DEPLOY
from tests.support.metrics_page import described

DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "blackboard.json").read_text())
RULES: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
OF_PROMETHEUS = {"instance", "job"}
"""Labels that each series has, by its scrape."""

_SERIES = re.compile(r"\b(blackboard_\w+)(?:\{(.*?)\})?")
_AGGREGATION = re.compile(r"\b(?:by|without) \(([^)]*)\) \((.*)")
_CLOSING = {")": "(", "}": "{", "]": "["}


@dataclass(frozen=True)
class Series:
    """A series as an expression asks for it."""

    name: str
    matched: frozenset[str]


def labels() -> dict[str, set[str]]:
    """The labels of every series that is exported, by its name."""
    found: dict[str, set[str]] = {}
    for metric in described():
        for suffix in SUFFIXES[metric.type]:
            extra = {"le"} if suffix == "_bucket" else set()
            found[metric.name.removesuffix("_total") + suffix] = {*metric.labels, *extra}
    return found


def panels() -> list[dict[str, Any]]:
    return [one for one in DASHBOARD["panels"] if one["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression, with where it stands."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for rule in ALERTS:
        yield rule["alert"], rule["expr"]


EXPRESSIONS = [
    pytest.param(expr, id=f"{n}: {where}") for n, (where, expr) in enumerate(expressions())
]


def series(expression: str) -> list[Series]:
    return [
        Series(name, frozenset(re.findall(r"(\w+) ?(?:=~|!~|!=|=)", matchers or "")))
        for name, matchers in _SERIES.findall(expression)
    ]


def inside(expression: str) -> str:
    """What stands before the parenthesis that closes what was open."""
    depth = 0
    for at, character in enumerate(expression):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return expression[:at]
    return expression


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_is_asked_for_is_exported(expression: str) -> None:
    exported = labels()
    asked = series(expression)
    assert asked
    for one in asked:
        assert one.name in exported
        assert one.matched <= exported[one.name] | OF_PROMETHEUS
    for names, over in _AGGREGATION.findall(" ".join(expression.split())):
        grouped = {name.strip() for name in names.split(",")} - OF_PROMETHEUS
        for one in series(inside(over)):
            assert grouped <= exported[one.name]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_brackets_are_balanced_and_counters_are_rates(expression: str) -> None:
    open_: list[str] = []
    for character in re.sub(r'"[^"]*"', "", expression):
        if character in _CLOSING.values():
            open_.append(character)
        elif character in _CLOSING:
            assert open_.pop() == _CLOSING[character]
    assert open_ == []
    for found in re.finditer(r"(\w+)\((blackboard_\w+_(?:total|bucket))", expression):
        assert found[1] in {"rate", "increase"}
    assert not re.search(r"(?<!rate\()(?<!increase\()blackboard_\w+_(total|bucket)", expression)


def test_boards_that_one_prometheus_has_are_kept_apart() -> None:
    """What is fine on one board must not hide what is wrong on another."""
    for panel in panels():
        for target in panel["targets"]:
            for one in series(target["expr"]):
                assert "job" in one.matched, panel["title"]
    for rule in ALERTS:
        for aggregated in re.findall(r"\b(?:sum|max|min|avg|count)\b([^(]*\([^)]*)", rule["expr"]):
            assert re.match(r" by \((.*\b)?(job|instance)\b", aggregated), rule["alert"]


def test_a_metric_that_is_not_exported_would_be_found() -> None:
    [wrong] = series('sum by (type) (rate(blackboard_run_total{type="x", kind=~"y"}[5m]))')
    assert wrong == Series("blackboard_run_total", frozenset({"type", "kind"}))
    assert wrong.name not in labels()


def test_the_dashboard_is_one_of_grafana() -> None:
    assert DASHBOARD["schemaVersion"] >= 41
    assert "id" not in DASHBOARD, "Grafana gives it one"
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    numbers = [one["id"] for one in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    for panel in panels():
        assert panel["title"]
        assert panel["description"]
        sources = [panel["datasource"], *(one["datasource"] for one in panel["targets"])]
        assert {one["uid"] for one in sources} == {"${datasource}"}
    assert series(variables["type"]["definition"])[0].name in labels()


def test_every_alert_says_what_is_wrong_and_for_how_long() -> None:
    names = [one["alert"] for one in ALERTS]
    assert len(set(names)) == len(names)
    assert all(name.startswith("Blackboard") for name in names)
    for rule in ALERTS:
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[smh]", rule["for"])
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"].keys() == {"summary", "description"}
        for label in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
            each = [labels()[one.name] for one in series(rule["expr"])]
            assert label in OF_PROMETHEUS or all(label in one for one in each), rule["alert"]
