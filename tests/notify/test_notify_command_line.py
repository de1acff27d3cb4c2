"""Notices from end to end: real workers, a real web server, and nothing secret in what is said."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine, blackboard
from tests.support.processes import Site, eventually, own_environ, site
from tests.support.receivers import Listener, listening

__all__ = ["blackboard"]

SECRET = "T0PSECRET"

JOBS = """
from blackboard import handler

@handler("picky", every="1s", retries=0)
async def picky(item, ctx):
    from pathlib import Path
    if not Path(item.params["folder"], "well").exists():
        raise ValueError("not yet")
"""


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as found:
        yield found


@pytest.fixture
def place(tmp_path: Path, store_url: str) -> Iterator[Site]:
    with site(tmp_path, store_url) as made:
        yield made


def settings(folder: Path, listener: Listener) -> None:
    out = folder / "notices.jsonl"
    program = f"import sys; open({str(out)!r}, 'a').write(sys.stdin.read() + chr(10))"
    (folder / "blackboard.toml").write_text(
        "[notify]\n"
        f'webhook = "{listener.address}/{SECRET}"\n'
        f"command = {json.dumps([sys.executable, '-c', program, SECRET])}\n"
        f'dead_man = "{listener.address}/ping/{SECRET}"\n'
    )


def posted(listener: Listener) -> list[str]:
    """The events that the webhook was sent."""
    return [one.json["event"] for one in listener.asked if one.method == "POST"]


def test_two_workers_tell_of_a_failure_and_its_end_once(place: Site, listener: Listener) -> None:
    settings(place.folder, listener)
    (place.folder / "picky.py").write_text(JOBS)
    place.add("davis", type_="picky", every="1s")
    workers = [place.works(place.worker("--jobs", "picky.py")) for _ in range(2)]
    eventually(lambda: len(place.runs("davis")) >= 4, "it fails four times")
    eventually(lambda: posted(listener), "it is told")
    place.mark("well")
    eventually(lambda: "recovered" in posted(listener), "its recovery is told")
    for worker in workers:
        worker.process.terminate()
    assert [worker.ended() for worker in workers] == [0, 0]
    assert posted(listener) == ["failed", "recovered"]
    lines = (place.folder / "notices.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["failed", "recovered"]
    assert {one.path for one in listener.asked if one.method == "GET"} == {f"/ping/{SECRET}"}
    told = [event for worker in workers for event in worker.events]
    messages = [event["message"] for event in told if event["event"] == "notified"]
    channels = (f"command {sys.executable}", f"webhook {listener.address}")
    kinds = ("failed", "recovered")
    assert sorted(messages) == [f"{kind}, by {channel}" for kind in kinds for channel in channels]
    assert not [worker for worker in workers if SECRET in worker.text]


@pytest.mark.of_one_store("notices are sent above the store")
def test_a_worker_that_ends_still_tells_what_it_saw(place: Site, listener: Listener) -> None:
    settings(place.folder, listener)
    (place.folder / "picky.py").write_text(JOBS)
    place.add("davis", type_="picky", every="1h")
    worker = place.worker("--jobs", "picky.py", "--until-idle")
    assert worker.ended() == 0, worker.text
    assert posted(listener) == ["failed"]
    assert "GET" in {one.method for one in listener.asked}


@pytest.mark.of_one_store("notices are sent above the store")
def test_a_webhook_that_refuses_stops_no_worker_and_stays_secret(
    place: Site, listener: Listener
) -> None:
    settings(place.folder, listener)
    listener.answers.extend([404] * 100)
    (place.folder / "picky.py").write_text(JOBS)
    place.add("davis", type_="picky", every="1h")
    worker = place.worker("--jobs", "picky.py", "--until-idle")
    assert worker.ended() == 0, worker.text
    assert worker.has_told("notify trouble", message=f"webhook {listener.address}: it answered 404")
    assert SECRET not in worker.text


@pytest.mark.of_one_store("notices are sent above the store")
def test_a_missing_variable_is_told_when_the_worker_starts(place: Site) -> None:
    (place.folder / "blackboard.toml").write_text('[notify]\nwebhook = "${NO_SUCH_HOOK}"\n')
    worker = place.works(place.worker())
    problem = "webhook: the environment variable NO_SUCH_HOOK is not set"
    eventually(lambda: worker.has_told("notify trouble", message=problem), "it is told")


# ---- blackboard notify --test


def test_a_test_notice_goes_out_in_every_way(blackboard: CommandLine, listener: Listener) -> None:
    settings(blackboard.folder, listener)
    said = blackboard("notify", "--test")
    assert said.out == (
        f"webhook  {listener.address}  sent\n"
        f"command  {sys.executable}  sent\n"
        f"dead_man {listener.address}  sent\n"
    )
    assert posted(listener) == ["test"]
    assert listener.asked[0].json["text"].startswith("blackboard: a test notice from ")
    assert not (blackboard.folder / "blackboard.db").exists()


@pytest.mark.of_one_store("notices are sent above the store")
def test_one_that_was_not_sent_is_exit_1(blackboard: CommandLine, listener: Listener) -> None:
    settings(blackboard.folder, listener)
    listener.answers.append(500)
    said = blackboard("notify", "--test", "--json", code=1)
    assert SECRET not in said.out + said.err
    address = listener.address
    assert said.json == [
        {"channel": "webhook", "to": address, "sent": False, "problem": "it answered 500"},
        {"channel": "command", "to": sys.executable, "sent": True, "problem": None},
        {"channel": "dead_man", "to": address, "sent": True, "problem": None},
    ]


@pytest.mark.of_one_store("notices are sent above the store")
def test_without_an_address_it_is_refused(blackboard: CommandLine) -> None:
    assert blackboard.refused("notify", "--test").startswith(
        "notify: there is nowhere to send notices"
    )
    assert "--test" in blackboard.refused("notify")


def test_a_worker_without_notify_loads_nothing_that_speaks_http(tmp_path: Path) -> None:
    line = ["worker", "--init", "--jobs", "shell", "--until-idle"]
    code = f"import sys; from blackboard.cli import called; called({line}); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=own_environ(),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert "blackboard.worker.walk" in loaded
    assert "urllib.request" not in loaded
