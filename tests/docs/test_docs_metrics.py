"""docs/metrics.md: its tables are the code's, its commands are typed beside a worker, its program
runs.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from blackboard.endpoint import DEFAULT_HOST
from blackboard.metrics import MOST_NAMES
from blackboard.metrics.server import pages_of
from blackboard.metrics.worker import WorkerMetrics
from blackboard.runners.tracing import LAST_EXPORT
from blackboard.settings import Settings
from tests.support.expositions import get, urls
from tests.support.metrics_page import PAGE, page
from tests.support.page_commands import blocks, commands, typed
from tests.support.processes import Site, eventually

TEXT = PAGE.read_text(encoding="utf-8")
CURL = re.compile(r"curl -s http://127\.0\.0\.1:9100(/\w+)(?: \| grep (?:-E )?'(.*)')?")


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, f"sqlite:{tmp_path / 'blackboard.db'}")
    try:
        yield made
    finally:
        made.close()


def test_the_tables_are_what_their_command_writes() -> None:
    assert page(TEXT) == TEXT, "run python -m tests.support.metrics_page"


def test_every_command_does_what_is_shown(site: Site) -> None:
    """The worker takes a free port. What `curl` and `grep` do is done here."""
    url = ""
    for block in blocks(TEXT):
        if block.file:
            (site.folder / block.file).parent.mkdir(exist_ok=True)
            (site.folder / block.file).write_text(block.text)
        for command in commands(block) if block.language == "console" else ():
            if asked := CURL.fullmatch(command.line):
                shown = command.shown
                eventually(lambda: printed(url, *asked.groups()) == shown, command.line)  # noqa: B023
            elif command.line.startswith("blackboard worker"):
                assert command.line.endswith("--metrics 9100")
                [url] = urls(site.start("worker", "--metrics", "0"))
            else:
                output = typed(command, site.folder)
                assert not command.shown or output == command.shown


def printed(url: str, path: str, pattern: str | None) -> str:
    """What `curl` prints, and `grep` lets through."""
    lines = get(f"{url}{path}")[1].decode().splitlines(keepends=True)
    return "".join(line for line in lines if pattern is None or re.search(pattern, line))


def test_what_it_says_is_so() -> None:
    paths = set(re.findall(r"^\| `(/\w+)` \|", TEXT, re.MULTILINE))
    assert paths == pages_of(WorkerMetrics()).keys()
    assert f"listens on {DEFAULT_HOST}" in TEXT
    assert f"after {MOST_NAMES} types the rest is `other`" in TEXT
    assert "waits for it two seconds" in TEXT
    assert LAST_EXPORT == 2


@pytest.mark.parametrize("language", ["toml", "yaml"])
def test_the_settings_that_are_shown_are_taken(language: str) -> None:
    found = [one.text for one in blocks(TEXT) if one.language == language]
    assert found
    for text in found:
        if language == "toml":
            msgspec.convert(tomllib.loads(text), type=Settings)
        else:
            assert yaml.safe_load(text)["scrape_configs"]
