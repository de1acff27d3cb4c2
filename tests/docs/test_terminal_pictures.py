"""The pictures of terminals in docs/: what they show, and that they can be made anew."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support.terminal_pictures import DOCS, PICTURES, make

SHOWN = {
    "show": ("nightly-report", "failed x2", "2 of 60 feeds failed", "6 items, 1 running"),
    "status": ("coordinator", "2 alive", "calendars"),
    "log": ("result or error", "ValueError: https", "warned"),
    "workers": ("rabbit:7301", "badger:7301", "alive"),
    "leases": ("checkpoint", "4 of 4 partitions held by 2 workers"),
    "watch": ("> montclair", "pause montclair, because", "the feed is gone_"),
}


def text_of(file: Path) -> str:
    """What is seen of a picture, which is one document that needs no other."""
    text = file.read_text(encoding="utf-8")
    links = set(re.findall(r"https?://[\w./]+", re.sub(r"<!--.*?-->|<text.*?</text>", "", text)))
    assert links == {"http://www.w3.org/2000/svg"}
    root = ET.fromstring(text)
    assert root.tag.endswith("svg")
    parts = (one.text or "" for one in root.iter() if one.tag.endswith("text"))
    return "\n".join(parts).replace("\xa0", " ")


def test_every_picture_is_made_by_the_program() -> None:
    assert SHOWN.keys() == {*PICTURES, "watch"}
    there = {file.stem.removeprefix("terminal-") for file in DOCS.glob("terminal-*.svg")}
    assert there == SHOWN.keys()


@pytest.mark.parametrize("name", SHOWN)
def test_a_picture_shows_what_the_command_writes(name: str) -> None:
    seen = text_of(DOCS / f"terminal-{name}.svg")
    squeezed = re.sub(r"[ \n]+", " ", seen)
    assert [text for text in SHOWN[name] if text not in squeezed] == []


def test_the_pictures_are_made_from_a_board_at_work(tmp_path: Path) -> None:
    made = make(tmp_path)
    assert {file.name for file in made} == {f"terminal-{name}.svg" for name in SHOWN}
    for file in made:
        squeezed = re.sub(r"[ \n]+", " ", text_of(file))
        words = [text for text in SHOWN[file.stem.removeprefix("terminal-")] if "7301" not in text]
        assert [text for text in words if text not in squeezed] == [], file.name
