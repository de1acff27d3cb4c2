"""The pages of docs/ are true: their programs are written, their commands typed, their links lead
somewhere. What a page has that cannot run here is listed with the reason.
"""

import re
import sys
from pathlib import Path

import pytest

from tests.support.page_commands import Command, blocks, commands, follow, typed

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
FOLLOWED = ("handlers", "operating", "schedules")
"""Their commands are typed from top to bottom. testing.md: tests/docs/test_readme.py."""
CHECKED_ELSEWHERE = {
    "api": "needs a server; tests/docs/test_docs_api.py",
    "azure": "needs an account; tests/docs/test_docs_azure.py reads its commands",
    "calendars": "needs feeds; tests/docs/test_docs_calendars.py",
    "deploy": "needs hosts; tests/deploy",
    "metrics": "beside a worker that goes on; tests/docs/test_docs_metrics.py",
    "notify": "needs a receiver; tests/docs/test_notify_docs.py",
    "python": "programs; tests/docs/test_docs_python.py",
    "reliability": "commands of a checkout that take minutes",
    "rows": "rows, no commands; tests/docs/test_docs_rows.py",
    "simulate": "to the last figure, below",
    "settings": "written from the settings; tests/docs/test_docs_settings.py",
    "sharing": "beside a worker that goes on; tests/docs/test_docs_sharing.py",
    "testing": "tests/docs/test_readme.py",
    "web": "beside a server that goes on; tests/web",
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_every_command_of_a_page_does_what_is_shown(name: str, tmp_path: Path) -> None:
    assert follow((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"), tmp_path)
    if (tmp_path / "jobs").is_dir():  # what later sections add fits to what is there
        typed(Command("blackboard types --check", ""), tmp_path)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="a seed is another world there")
def test_what_a_simulation_shows_is_what_it_finds(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "simulate.md").read_text(encoding="utf-8")
    there = [one for block in blocks(page) for one in commands(block)]
    found = [Command(one.line, typed(one, tmp_path) if one.shown else "") for one in there]
    assert found == there, "write into docs/simulate.md what is found now"
    for one in there:
        if not one.shown:
            typed(one, tmp_path)


def test_every_page_with_commands_is_followed_or_says_why_not() -> None:
    typed = {
        page.stem
        for page in PAGES
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.language == "console" and list(commands(block))
    }
    assert typed <= {*FOLLOWED, *CHECKED_ELSEWHERE}


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_links_and_files_that_are_named_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [one.partition("#") for one in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text)]
    assert [path for path, _, _ in links if path and not (page.parent / path).exists()] == []
    named = re.findall(r"`((?:blackboard|tests|benchmarks|deploy|docs)/[\w./]*)`", text)
    assert [name for name in named if not (ROOT / name).exists()] == []
    for path, _, anchor in links:
        if anchor:
            target = (page.parent / path if path else page).read_text(encoding="utf-8")
            titles = re.findall(r"^#+ (.*)$", target, re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in titles]
            assert anchor in slugs, f"{path}#{anchor}"


def test_every_command_for_a_cluster_names_its_namespace() -> None:
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    text += (ROOT / "deploy" / "kubernetes" / "web.yaml").read_text(encoding="utf-8")
    calls = re.findall(r"kubectl (?:apply|create|exec)[^`\n]+(?:\n--)?", text)
    assert len(calls) > 4
    assert [one for one in calls if "--namespace NAMESPACE" not in one] == []


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\]\((\w+)\.md\)", index))
    assert named == {page.stem for page in PAGES} - {"index"}


def test_the_modules_that_the_index_names_are_there() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)`", index)
    assert len(named) > 15
    assert [
        name
        for name in named
        if not (ROOT / "blackboard" / name.removeprefix("blackboard/")).is_file()
    ] == []
