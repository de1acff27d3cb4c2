"""docs/notify.md is true: its settings are taken, its JSON is what is sent."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from blackboard.notify.channels import _VARIABLES
from blackboard.notify.notice_rows import HANDOVER, MOST_DOUBLINGS
from blackboard.notify.notices import LONGEST_ERROR, LONGEST_LINE, MOST_NAMED, Composer
from blackboard.notify.notifier import SHUTDOWN_TIMEOUT
from blackboard.notify.sending import PING_EVERY
from blackboard.notify.settings import NoticeKind, NotifyTable
from blackboard.settings import load_settings
from blackboard.spec import Labels
from tests.support.clocks import START
from tests.support.receivers import NOTICE

DOCS = (Path(__file__).resolve().parents[2] / "docs" / "notify.md").read_text(encoding="utf-8")
PROSE = " ".join(DOCS.split())
COMPOSER = Composer(board="town", worker="rabbit")


def blocks(language: str) -> Iterator[str]:
    yield from re.findall(rf"^```{language}\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", list(blocks("toml")))
def test_the_settings_that_are_shown_are_taken(tmp_path: Path, text: str) -> None:
    file = tmp_path / "blackboard.toml"
    file.write_text(text, encoding="utf-8")
    assert load_settings(file).notify is not None


def test_every_setting_is_explained_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", DOCS, re.MULTILINE)
    defaults = msgspec.structs.asdict(NotifyTable())
    assert {name for name, _ in rows} == set(defaults)
    for name, shown in rows:
        known = "all five" if name == "on" else str(defaults[name] or "")
        assert shown.strip(" `") == known, name


def test_the_json_that_is_shown_has_the_keys_that_are_sent() -> None:
    one, summary = (json.loads(text) for text in blocks("json"))
    assert list(one) == list(COMPOSER.payload(NOTICE, at=START))
    assert list(summary) == list(COMPOSER.summary([NOTICE, NOTICE], at=START))
    labels = Labels(**{**one["labels"], "tags": tuple(one["labels"]["tags"])})
    failed = replace(NOTICE, error=one["error"], failures=one["failures"], labels=labels)
    assert (
        Composer(board="blackboard", worker="rabbit").payload(failed, at=START)["text"]
        == one["text"]
    )


def test_the_numbers_that_are_named_are_those_that_hold() -> None:
    assert f"up to {LONGEST_ERROR:,} characters" in PROSE
    assert f"up to {LONGEST_LINE} characters" in PROSE
    assert f"up to {MOST_NAMED} `items`" in PROSE
    assert f"every {PING_EVERY:.0f} s at the most" in PROSE
    assert (HANDOVER, SHUTDOWN_TIMEOUT) == (300, 5), "five minutes, five seconds"
    longest = timedelta(seconds=HANDOVER * 2**MOST_DOUBLINGS)
    assert f"every {longest / timedelta(minutes=1):g} minutes" in PROSE
    assert all(f"- `{news}`: " in DOCS for news in NoticeKind)
    assert all(f"`BLACKBOARD_{name}`" in DOCS for name in _VARIABLES)
