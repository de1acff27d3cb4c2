"""What a run is run with: layers, and the first that says something decides."""

from datetime import timedelta
from typing import Any

import pytest

from blackboard.errors import BadInput
from blackboard.schedule.schedule import Every
from blackboard.spec import RunSettings, Spec, decode_spec, encode_spec, params_of, resolve


def test_a_spec_comes_back_from_a_row_and_says_nothing_it_was_not_told() -> None:
    spec = Spec(every="8h", retries=2, params={"feeds": ["a", "b"]})
    assert decode_spec(encode_spec(spec)) == spec
    assert encode_spec(spec) == '{"every":"8h","retries":2,"params":{"feeds":["a","b"]}}'
    assert encode_spec(Spec()) == "{}"


def test_fields_of_a_newer_version_are_passed_over() -> None:
    assert decode_spec('{"every":"8h","flavour":"vanilla"}') == Spec(every="8h")


@pytest.mark.parametrize("text", ["", "no", "[]", '{"retries":"many"}', '{"every":8}'])
def test_what_is_no_spec_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_spec(text)


def test_silence_is_the_defaults() -> None:
    assert resolve([Spec()]) == resolve([]) == RunSettings()
    assert RunSettings().text == ""


def test_the_first_layer_that_says_something_about_a_field_decides_it() -> None:
    item = Spec(timeout="1m", retries=0)
    of_type = Spec(timeout="2m", retries=5, backoff="1s", missed="all")
    handler = Spec(backoff="2s", jitter="3s", missed="none", stale_after="4s", missed_limit=7)
    settings = resolve([item, of_type, handler])
    assert settings == RunSettings(
        timeout=timedelta(minutes=1),
        retries=0,
        backoff=timedelta(seconds=1),
        jitter=timedelta(seconds=3),
        missed="all",
        missed_limit=7,
        stale_after=timedelta(seconds=4),
    )


@pytest.mark.parametrize("nothing", ["0", "0s"])
def test_an_item_may_have_no_jitter_though_its_type_has_one(nothing: str) -> None:
    assert resolve([Spec(jitter=nothing), Spec(jitter="5m")]).jitter == timedelta(0)


def test_the_schedule_counts_as_one_thing() -> None:
    settings = resolve([Spec(retries=1), Spec(every="8h"), Spec(cron="0 3 * * *")])
    assert settings.schedule == Every(timedelta(hours=8))
    assert settings.text == "every 8h"


def test_the_zone_is_any_layers() -> None:
    settings = resolve([Spec(at="2026-11-21T09:00"), Spec(timezone="Europe/Berlin")])
    assert settings.text == "at 2026-11-21T09:00:00+01:00"
    assert settings.timezone == "Europe/Berlin"


IN_TOKYO = "DTSTART;TZID=Asia/Tokyo:20260101T090000\\nRRULE:FREQ=DAILY"


@pytest.mark.parametrize(
    ("layers", "zone"),
    [
        ([Spec(rrule=IN_TOKYO)], "Asia/Tokyo"),
        ([Spec(retries=1), Spec(rrule=IN_TOKYO)], "Asia/Tokyo"),
        ([Spec(rrule="dtstart;tzid=Asia/Tokyo:20260101\nrrule:freq=daily")], "Asia/Tokyo"),
        ([Spec(every="8h"), Spec(rrule=IN_TOKYO)], "UTC"),
        ([Spec(rrule="FREQ=DAILY")], "UTC"),
    ],
)
def test_a_rule_that_names_its_zone_needs_no_other(layers: list[Spec], zone: str) -> None:
    settings = resolve(layers)
    assert settings.schedule is not None
    assert (settings.timezone, settings.schedule.zone) == (zone, zone)


def test_a_rule_of_another_zone_than_what_was_said_is_refused() -> None:
    with pytest.raises(BadInput, match="Asia/Tokyo"):
        resolve([Spec(rrule=IN_TOKYO, timezone="Europe/Berlin")])


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"every": "8"}, "every"),
        ({"cron": "61 * * * *"}, "cron"),
        ({"rrule": "FREQ=NEVER"}, "rrule"),
        ({"at": "soon"}, "at"),
        ({"every": "8h", "cron": "0 3 * * *"}, "cron"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"timeout": "0s"}, "timeout"),
        ({"backoff": "-1s"}, "backoff"),
        ({"jitter": "soon"}, "jitter"),
        ({"missed_after": ""}, "missed_after"),
        ({"stale_after": "2999ms"}, "stale_after"),
        ({"retries": -1}, "retries"),
        ({"retries": 10_001}, "retries"),
        ({"missed_limit": 0}, "missed_limit"),
        ({"missed_limit": 1_001}, "missed_limit"),
        ({"every": "1h", "blackout": "sat," * 2_500 + "sun"}, "blackout"),
        ({"cron": "; ".join(["0 9 * * *"] * 101)}, "cron"),
        ({"cron": ",".join(["0"] * 5_000) + " 9 * * *"}, "cron"),
        ({"missed": "some"}, "missed"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(said: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as refused:
        resolve([Spec(**said)])
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("params", "once", "both"),
    [
        ({"a": 1, "b": 2}, "", {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, '{"b":3,"c":[]}', {"a": 1, "b": 3, "c": []}),
        ({}, '{"a":1}', {"a": 1}),
    ],
)
def test_what_is_given_for_one_run_lies_over_the_items_params(
    params: dict[str, Any], once: str, both: dict[str, Any]
) -> None:
    assert params_of(encode_spec(Spec(params=params)), once) == both


@pytest.mark.parametrize("stale_after", ["3s", "3000ms", "8h"])
def test_a_lease_is_three_seconds_at_the_least(stale_after: str) -> None:
    assert resolve([Spec(stale_after=stale_after)]).stale_after is not None
