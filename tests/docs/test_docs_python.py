"""The programs of docs/python.md run as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.page_commands import blocks
from tests.support.patience import patience
from tests.support.processes import own_environ

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")

CLIENT = """
import time
from starlette.testclient import TestClient
from app import app

with TestClient(app) as client:
    added = client.post("/feeds/toronto", json={"url": "x"})
    assert added.status_code == 201, added.text
    assert client.post("/feeds/toronto", json={"url": "x"}).status_code == 400
    until = time.monotonic() + SECONDS
    while (found := client.get("/feeds/toronto").json())["outcome"] is None:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert found == {"outcome": "ok", "result": {"read": "x"}}, found
print("stopped")
""".replace("SECONDS", str(patience(60.0)))
DJANGO = """
import django
from django.conf import settings
from django.test import Client

settings.configure(ROOT_URLCONF="views", ALLOWED_HOSTS=["*"], SECRET_KEY="of a test")
django.setup()
import views

client = Client()
assert client.get("/feeds/toronto").status_code == 404
views.board().add("toronto", "feed", params={"url": "x"})
assert client.get("/feeds/toronto?url=y").json()["ahead"] == 0
assert client.get("/feeds/toronto?url=z").json()["ahead"] == 1
views.board().worker().work("idle")
print(*(run.result["read"] for run in views.board().runs("toronto")))
"""


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """A folder with all programs of the page."""
    for block in blocks(PAGE):
        if block.language == "python":
            assert block.file, block.text
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    return tmp_path


def said_by(folder: Path, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, *args],
        cwd=folder,
        env=own_environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_the_first_program_says_what_is_shown(folder: Path) -> None:
    [shown] = [block.text for block in blocks(PAGE) if block.language == "console"]
    assert shown == f"$ python feeds.py\n{said_by(folder, 'feeds.py')}"


def test_an_application_works_in_its_lifespan(folder: Path) -> None:
    assert said_by(folder, "-c", CLIENT) == "stopped\n"
    ended = "import blackboard\nwith blackboard.open_blocking('app.db') as board:\n"
    assert said_by(folder, "-c", f"{ended}    print(board.workers())") == "[]\n"


def test_a_view_asks_for_runs(folder: Path) -> None:
    assert said_by(folder, "-c", DJANGO) == "z y\n"


def test_a_script_asks_again_for_what_failed(folder: Path) -> None:
    said_by(folder, "-c", FAILING)
    said = said_by(folder, "failed.py").splitlines()
    assert said == ["toronto 1 KeyError: 'url'", "True"]


FAILING = """
import blackboard
with blackboard.open_blocking("app.db", handlers=["jobs.py"], create=True) as board:
    board.add("toronto", "feed")
    board.worker().work("idle")
"""


def test_a_subscriber_counts_what_ended(folder: Path) -> None:
    said_by(folder, "-c", FAILING.replace("    board.worker", "    # "))
    assert said_by(folder, "counted.py") == "{('feed', 'failed'): 1}\n"


def test_a_script_leads(folder: Path) -> None:
    assert said_by(folder, "leader.py") == "term 1 goes on\n"
    assert said_by(folder, "leader.py") == "term 2 goes on\n"


def test_the_test_passes(folder: Path) -> None:
    args = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_feeds.py")
    assert "1 passed" in said_by(folder, *args)


def test_every_program_of_the_page_is_run() -> None:
    names = set(re.findall(r"^```python\n# (\w+)\.py$", PAGE, re.MULTILINE))
    assert names == {
        *("feeds", "app", "views", "jobs", "failed", "test_feeds", "counted", "leader"),
    }
