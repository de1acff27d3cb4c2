"""`blackboard azurite` as a real process."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from blackboard.tables.azurite import Emulator
from tests.support.processes import Site, Started, all_gone, eventually, site


@pytest.fixture(name="site")
def made(tmp_path: Path, azurite: Emulator) -> Iterator[Site]:
    """The emulator is installed already."""
    with site(tmp_path, store="") as found:
        yield found


def told(command: Started, text: str) -> str:
    """Wait until it has told `text`; all that it has told."""
    eventually(lambda: text in command.text or command.process.poll() is not None, text)
    assert text in command.text, command.text
    return command.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_runs_until_it_is_asked_to_end(site: Site, number: signal.Signals) -> None:
    command = site.start("azurite", "--port", "0")
    told(command, "Ctrl-C ends it.\n")
    emulators = site.below(command)
    assert ["start.cjs" in one.cmdline() for one in emulators] == [True]
    command.send(number)
    assert command.ended() == 0
    assert all_gone(emulators)


def test_it_ends_when_it_is_killed(site: Site) -> None:
    command = site.start("azurite", "--port", "0")
    told(command, "Ctrl-C ends it.\n")
    emulators = site.below(command)
    command.send(signal.SIGKILL)
    eventually(lambda: all_gone(emulators), "the emulator ends")


def test_people_are_told_what_to_do_next(site: Site) -> None:
    text = told(site.start("azurite", "--port", "0"), "Ctrl-C ends it.\n")
    url = text.splitlines()[0]
    assert url.startswith("azurite://127.0.0.1:")
    assert f"\n  export BLACKBOARD_STORE={url}\n  blackboard init\n" in text
    assert "Rows are in memory, until it ends." in text


def test_programs_are_told_one_line_of_json(site: Site) -> None:
    text = told(site.start("azurite", "--port", "0", "--json"), "}\n")
    record = json.loads(text)
    assert record == {
        "store": f"azurite://127.0.0.1:{record['port']}/blackboard",
        "port": record["port"],
        "location": None,
    }
    assert text.count("\n") == 1


def test_a_board_in_a_folder_is_there_the_next_time(site: Site) -> None:
    for made in (True, False):
        command = site.start("azurite", "--port", "0", "--location", "rows", "--json")
        store = json.loads(told(command, "}\n"))["store"]
        init = site.start("init", "--store", store, "--json")
        assert init.ended() == 0, init.text
        assert json.loads(init.text)["made"] is made
        command.send(signal.SIGINT)
        assert command.ended() == 0


def test_a_port_that_is_taken_is_bad_input(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = site.start("azurite", "--port", str(port))
        assert command.ended() == 2
    assert command.text == (
        f"blackboard: port: {port} is taken (name another, or end what listens there)\n"
    )


@pytest.mark.parametrize("closed", [">&-", ">/dev/full"])
def test_it_goes_on_where_nothing_takes_its_url(site: Site, closed: str) -> None:
    line = f'exec "$0" -m blackboard azurite --port 0 --log log {closed}'
    program = ("-c", f"import os, sys; os.execlp('sh', 'sh', '-c', {line!r}, sys.executable)")
    command = site.start(program=program)
    log = site.folder / "log"
    eventually(lambda: log.exists() and "listening on" in log.read_text(), "it listens")
    [emulator] = site.below(command)
    emulator.kill()
    assert command.ended() == 2
    assert "blackboard: Azurite has ended; it said: " in command.text


def test_an_emulator_that_ends_by_itself_is_a_failure(site: Site) -> None:
    command = site.start("azurite", "--port", "0", "--json")
    told(command, "}\n")
    [emulator] = site.below(command)
    assert isinstance(emulator, psutil.Process)
    emulator.kill()
    assert command.ended() == 2
    assert "blackboard: Azurite has ended; it said: " in command.text
