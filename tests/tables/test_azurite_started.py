"""The emulator as a process: how it is started and stopped."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from blackboard.errors import BadInput, StoreProblem
from blackboard.tables import azurite as emulation
from blackboard.tables.azurite import start
from tests.support.azurite_client import Client
from tests.support.processes import eventually, is_gone

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def listening() -> Iterator[int]:
    """A port that is taken."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_it_answers_as_soon_as_it_has_started_and_no_more_once_stopped() -> None:
    with start() as emulator:
        assert emulator.url == f"azurite://127.0.0.1:{emulator.port}/blackboard"
        assert Client(emulator.port).make().status == 201
        assert not is_gone(emulator.pid)
    assert is_gone(emulator.pid)
    with pytest.raises(ConnectionRefusedError):
        Client(emulator.port).make()
    emulator.stop()
    assert "successfully closed" in emulator.wait()


def test_a_log_for_which_the_disk_has_no_room_does_not_stop_it() -> None:
    with start(log=Path("/dev/full")) as emulator:
        assert Client(emulator.port).make().status == 201
    assert "successfully closed" in emulator.wait()


def test_it_listens_on_the_port_it_was_given() -> None:
    with listening() as port:
        pass
    with start(port=port) as emulator:
        assert emulator.port == port


def test_a_port_that_is_taken_is_told() -> None:
    with listening() as port, pytest.raises(BadInput, match=f"port: {port} is taken"):
        start(port=port)


def test_rows_in_memory_end_with_it_and_rows_in_a_folder_do_not(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "for it"
    for place in (folder, None):
        with start(folder=place) as emulator:
            client = Client(emulator.port)
            client.make()
            client.insert()
        with start(folder=place) as again:
            found = Client(again.port, client.table).read().status
        assert found == (404 if place is None else 200)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"location: .*file/below cannot be made"):
        start(folder=tmp_path / "file" / "below")


PARENT = """
import sys
from pathlib import Path
from blackboard.tables.azurite import start
emulator = start(folder=Path(sys.argv[1]))
print(emulator.pid, emulator.port, flush=True)
sys.stdin.read()
"""


def test_it_saves_its_rows_and_ends_when_who_started_it_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid, port = map(int, parent.stdout.readline().split())
        client = Client(port)
        client.make()
        client.batch(*(f"row-{n}" for n in range(100)))
        parent.send_signal(signal.SIGKILL)
    eventually(lambda: is_gone(pid), "the emulator ends")
    with start(folder=tmp_path) as emulator:
        assert len(Client(emulator.port, client.table).page().rows) == 100


def test_what_the_environment_says_to_node_and_azurite_does_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NODE_OPTIONS", "--require /absent.js")
    monkeypatch.setenv("AZURITE_ACCOUNTS", "other:c2VjcmV0")
    monkeypatch.setenv("PATH", "")
    with start() as emulator:
        assert Client(emulator.port).make().status == 201


def instead_of_azurite(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Installed is a program that does something else."""
    (folder / "start.cjs").write_text(script)
    monkeypatch.setattr(emulation, "install", lambda tell: folder)


def test_what_it_said_is_told_when_it_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead_of_azurite(monkeypatch, tmp_path, 'console.error("not today"); process.exit(3);')
    with pytest.raises(StoreProblem, match="it said:\nnot today"):
        start()


def test_what_never_listens_and_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'process.on("SIGINT", () => {}); console.log(process.pid); setInterval(() => {}, 1e9);'
    instead_of_azurite(monkeypatch, tmp_path, script)
    monkeypatch.setattr(emulation, "STARTING", 2.0)
    monkeypatch.setattr(emulation, "STOPPING", 0.1)
    with pytest.raises(StoreProblem, match="did not start") as told:
        start()
    assert is_gone(int(str(told.value).split()[-1]))
