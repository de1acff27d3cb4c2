"""The programs of docs/python.md and docs/web.md run as they stand there."""

import re
import subprocess
import sys
from inspect import Parameter, signature
from pathlib import Path

import pytest

from blackboard import Board, open_blocking
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
    assert client.get("/feeds/nowhere").status_code == 404
print("stopped")
""".replace("SECONDS", str(patience(60.0)))
PAGES = """
from starlette.testclient import TestClient
from app import app

for _ in range(2):
    with TestClient(app, base_url="http://localhost") as client:
        page = client.get("/jobs/")
        assert page.status_code == 200, page.text
"""
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
MODELS = """
import blackboard
import users
from django.core.management import call_command

call_command("migrate", verbosity=0)
with blackboard.open_blocking("app.db", handlers=["users"], create=True) as board:
    board.add_many({"a": {}, "b": {}}, "users")
    board.worker(slots=1).work("idle")
    print(*(run.result["users"] for run in board.runs()))
"""
SETTINGS = """
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "users.sqlite3"}}
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes"]
SECRET_KEY = "of a test"
"""
AT_ONCE = """
import threading
import views

ready = threading.Barrier(8)
found = set()

def first():
    ready.wait()
    found.add(views.board())

threads = [threading.Thread(target=first) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(found) == 1
"""


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """A folder with all programs of the page."""
    for name, text in programs().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def programs() -> dict[str, str]:
    """The programs of the page, by the names of their files."""
    found = {}
    for block in blocks(PAGE):
        if block.language == "python":
            assert block.file, block.text
            found[block.file] = block.text
    return found


def output_of(folder: Path, *args: str, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, *args],
        cwd=folder,
        env={**own_environ(), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_the_first_program_says_what_is_shown(folder: Path) -> None:
    [shown] = [block.text for block in blocks(PAGE) if block.language == "console"]
    assert shown == f"$ python feeds.py\n{output_of(folder, 'feeds.py')}"


def test_an_application_works_in_its_lifespan(folder: Path) -> None:
    assert output_of(folder, "-c", CLIENT) == "stopped\n"
    with open_blocking(folder / "app.db") as board:
        assert board.workers() == []


def test_a_view_asks_for_runs(folder: Path) -> None:
    assert output_of(folder, "-c", DJANGO) == "z y\n"


def test_a_handler_uses_models(folder: Path) -> None:
    (folder / "site_settings.py").write_text(SETTINGS)
    assert output_of(folder, "-c", MODELS, DJANGO_SETTINGS_MODULE="site_settings") == "0 0\n"


def test_threads_that_are_the_first_open_one_board(folder: Path) -> None:
    output_of(folder, "-c", AT_ONCE)


def test_pages_are_served_each_time_that_an_application_starts(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "web.md").read_text(encoding="utf-8")
    [program] = [block.text for block in blocks(page) if block.language == "python"]
    (tmp_path / "app.py").write_text(program, encoding="utf-8")
    output_of(tmp_path, "-c", PAGES)


def test_a_script_asks_again_for_what_failed(folder: Path) -> None:
    with open_blocking(folder / "app.db", handlers=[folder / "jobs.py"], create=True) as board:
        board.add("toronto", "feed")
        board.worker().work("idle")
        assert output_of(folder, "failed.py") == "toronto 1 KeyError: 'url'\n"
        assert board.item("toronto").failures == 2


def test_a_subscriber_counts_what_ended(folder: Path) -> None:
    assert output_of(folder, "counted.py") == "{('feed', 'ok'): 1}\n"
    assert output_of(folder, "counted.py") == "{}\n"


def test_a_script_leads(folder: Path) -> None:
    assert output_of(folder, "leader.py") == "term 1 goes on\n"
    assert output_of(folder, "leader.py") == "term 2 goes on\n"


def test_the_test_passes(folder: Path) -> None:
    args = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_feeds.py")
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # without the plugins of our own tests
    (folder / "pytest.ini").touch()  # else it is looked for in the folders above
    assert "1 passed" in output_of(folder, *args, **alone)


def test_the_programs_are_right_for_mypy() -> None:
    """As they stand there: their handlers are not annotated. In a folder that stays: mypy keeps
    what it has found there.
    """
    cache = ROOT / ".mypy_cache" / "docs"
    place = cache / "programs"
    place.mkdir(parents=True, exist_ok=True)
    for name, text in programs().items():
        file = place / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
    plain = ("--config-file=", "--follow-imports=silent", "--ignore-missing-imports")
    output_of(place, "-m", "mypy", *plain, f"--cache-dir={cache}", *sorted(programs()))


VERBS = re.findall(r"^\| (`[a-z_]+\(.*?) \|", PAGE, re.MULTILINE)
"""The first cells of the table of verbs."""


def arguments_of(verb: str) -> list[str]:
    """The names of the arguments that a call takes, as the page writes it."""
    inside = re.sub(r"[`(){}]", "", verb.partition("(")[2])
    return [
        one.partition("=")[0].strip() for one in inside.split(",") if one.strip() not in {"", "..."}
    ]


@pytest.mark.parametrize(
    "verb", [one for cell in VERBS for one in re.findall(r"`([a-z_]+\([^`]*\))`", cell)]
)
def test_a_verb_has_the_arguments_that_the_page_names(verb: str) -> None:
    taken = signature(getattr(Board, verb.partition("(")[0])).parameters
    assert set(arguments_of(verb)) <= taken.keys()
    whole = [
        name for name in taken if name != "self" and taken[name].kind is not Parameter.VAR_KEYWORD
    ]
    named = arguments_of(verb)
    assert "..." in verb or not [name for name in whole if name not in named]


def test_every_program_of_the_page_is_run() -> None:
    names = set(re.findall(r"^```python\n# (\w+)\.py$", PAGE, re.MULTILINE))
    assert names == {
        *("feeds", "app", "views", "jobs", "failed", "test_feeds", "counted", "leader", "users"),
    }
