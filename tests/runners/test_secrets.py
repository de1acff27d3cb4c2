"""No secret comes out: every command is run with canaries planted, and what came out is searched.

What comes out is stdout, stderr, logs at DEBUG (those of the Azure libraries, too), files that were
written and the rows of the store. The canaries are an account key and a shared access signature
that open the store, others that do not, and what `${CANARY}` stands for in params and `[notify]`,
which the handlers here quote in all that they print, log, return and raise.
"""

import base64
import hashlib
import json
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import (
    AccountSasPermissions,
    ResourceTypes,
    TableClient,
    generate_account_sas,
)

from blackboard.cli import COMMANDS, called
from blackboard.tables import retrying
from tests.support import benches
from tests.support.identity_servers import emulator
from tests.support.patience import patience

ROOT = Path(__file__).resolve().parents[2]
ACCOUNT = "devstoreaccount1"


def key_of(seed: str) -> str:
    """An account key as Azure makes them: 64 bytes in base64."""
    return base64.b64encode(hashlib.sha512(seed.encode()).digest()).decode()


def signature_by(key: str) -> str:
    """A shared access signature for whatever a board needs, for longer than this code will live."""
    return generate_account_sas(
        AzureNamedKeyCredential(ACCOUNT, key),
        resource_types=ResourceTypes(service=True, container=True, object=True),
        permission=AccountSasPermissions(
            read=True, write=True, delete=True, list=True, add=True, create=True, update=True
        ),
        expiry=datetime(2099, 1, 1, tzinfo=UTC),
    )


KEY, WRONG_KEY = key_of("canary"), key_of("another canary")
SIGNATURE, WRONG_SIGNATURE = signature_by(KEY), signature_by(WRONG_KEY)
PARAM = "canary/of+a=param:"


def forms(secret: str) -> set[str]:
    """How a secret may look when it comes out, shortened to what tells it from anything else."""
    plain = unquote(secret)
    encoded = base64.b64encode(plain.encode()).decode()
    return {form[:14] for form in (secret, plain, quote(plain), quote(plain, safe=""), encoded)}


CANARIES = set.union(
    *(forms(secret) for secret in (KEY, WRONG_KEY, PARAM)),
    *(forms(one.rpartition("sig=")[2]) for one in (SIGNATURE, WRONG_SIGNATURE)),
)


def seen_in(text: str) -> list[str]:
    return [canary for canary in CANARIES if canary in text]


SETTINGS = """
[board]
jobs = ["jobs.py"]

[notify]
webhook = "http://127.0.0.1:1/hook?token=${CANARY}"
dead_man = "http://127.0.0.1:1/${CANARY}"
command = ["sh", "-c", "echo $${CANARY}; exit 1"]

[[items]]
id = "salem"
type = "works"
every = "8h"
params = { token = "${CANARY}" }
"""
JOBS = """
import os
from urllib.parse import quote

from blackboard import handler


def say(item, ctx):
    token = item.params["token"]
    url = "https://ann?token=" + quote(token, safe="")
    print("printed", token, url, repr(token))
    ctx.log.warning("logged %s and %s", token, url)
    return {"token": token, token: [{"url": url}]}


@handler("works", every="8h")
async def works(item, ctx):
    return say(item, ctx)


@handler("plain", every="8h")
def plain(item, ctx):
    return say(item, ctx)


@handler("fails", every="8h")
async def fails(item, ctx):
    raise RuntimeError(f"{say(item, ctx)} were not enough")


@handler("dumps", every="8h")
async def dumps(item, ctx):
    found = {name: text for name, text in os.environ.items() if name.startswith("BLACKBOARD")}
    print(found)
    ctx.log.warning("%s", found)
    return found


@handler("breaks", every="8h")
def breaks(item, ctx):
    try:
        raise KeyError(item.params["token"])
    except KeyError as missing:
        raise RuntimeError(f"{say(item, ctx)} were not enough") from missing
"""

LINES = {
    "init": 0,
    "add davis keene --type works --every 8h --set token=${CANARY}": 0,
    "add derry --type fails --every 8h --set token=${CANARY}": 0,
    "add epsom --type plain --every 8h --set token=${CANARY}": 0,
    "add exeter --type breaks --every 8h --set token=${CANARY}": 0,
    "add bow --type works --every 8h --set token=${MISSING}": 0,
    "apply": 0,
    "export": 0,
    "edit davis --set days=7": 0,
    "show": 0,
    "log": 0,
    "next davis": 0,
    "why davis": 0,
    "report davis": 1,
    "pause davis": 0,
    "resume davis": 0,
    "run davis --here --jobs jobs.py --set other=${CANARY}": 0,
    "run davis --set other=${CANARY}": 0,
    "run derry --here --jobs jobs.py": 1,
    "run epsom --here --jobs jobs.py": 0,
    "run exeter --here --jobs jobs.py": 1,
    "run bow --here --jobs jobs.py": 1,
    "log --output": 0,
    "ack derry": 0,
    "rename keene dixon": 0,
    "cancel davis": 1,
    "unlock davis": 1,
    "workers": 0,
    "status": 0,
    "leases": 0,
    "leader": 0,
    "cost": 0,
    "simulate --hours 0.1": 0,
    "bench --seconds 0.1": 0,
    "check": 1,
    "doctor": 0,
    "rm dixon": 0,
    "why nobody": 2,
    "notify --test": 1,
    "demo --nonsense": 2,
    "types --jobs jobs.py": 0,
    "import-crontab nothing": 2,
}
"""Every command, and its exit code on a store that works."""
ELSEWHERE = {"worker", "azurite", "serve"}
"""Commands that are run in processes of their own, below."""
AS_JSON = {
    "wrong_key",
    "key_for_nobody",
    "key_in_the_address",
    "signature_in_the_address",
    "password_in_the_address",
}
"""Stores on which every command is called for JSON, too: of each kind of refusal one that answers,
one that is not there, and those whose address is the secret."""
WITHOUT_STORE = {
    "notify --test",
    "demo --nonsense",
    "types --jobs jobs.py",
    "import-crontab nothing",
}


def test_every_command_is_run() -> None:
    assert {line.split()[0] for line in LINES} | ELSEWHERE == COMMANDS.keys()


@dataclass(frozen=True)
class Planted:
    """Where a store is said to be, and with what connection string."""

    url: str
    said: str = ""
    code: int | None = None
    """The exit code of whoever asks it; None: it works."""
    words: str = ""
    """Why it does not."""


def planted(port: int) -> dict[str, Planted]:
    here, nowhere = f"azurite://127.0.0.1:{port}/town", "azurite://127.0.0.1:1/town"
    key = f"AccountName={ACCOUNT};AccountKey={KEY}"
    signed = f"AccountName={ACCOUNT};SharedAccessSignature={SIGNATURE}"
    return {
        "key": Planted(here, key),
        "signature": Planted(here, signed),
        "wrong_key": Planted(here, key.replace(KEY, WRONG_KEY), 2, "refuses the account key"),
        "wrong_signature": Planted(
            here, signed.replace(SIGNATURE, WRONG_SIGNATURE), 2, "refuses the shared access"
        ),
        "key_for_nobody": Planted(nowhere, key, 3, "cannot connect to 127.0.0.1:1"),
        "signature_for_nobody": Planted(nowhere, signed, 3, "cannot connect to 127.0.0.1:1"),
        "no_connection_string": Planted(here, f"{KEY};{SIGNATURE}", 2, "no connection string"),
        "half_a_key": Planted(here, key[:-3], 2, "not whole"),
        "another_account": Planted(
            "https://ann.table.core.windows.net/town", key, 2, "account ann"
        ),
        "signature_in_the_address": Planted(f"{here}?{SIGNATURE}", "", 2, "holds a secret"),
        "key_in_the_address": Planted(key, "", 2, "holds a secret"),
        "password_in_the_address": Planted(
            here.replace("//", f"//ann:{KEY}@"), "", 2, "holds a secret"
        ),
    }


@pytest.fixture(scope="module", name="port")
def _port() -> Iterator[int]:
    """Of an emulator whose account has the canary for its key."""
    with emulator(key=KEY) as port:
        yield port


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BLACKBOARD_STORE", raising=False)
    monkeypatch.setenv("CANARY", PARAM)
    (tmp_path / "blackboard.toml").write_text(SETTINGS)
    (tmp_path / "jobs.py").write_text(JOBS)
    return tmp_path


@dataclass
class Listener:
    """Calls commands, and hears all that they say."""

    capsys: pytest.CaptureFixture[str]
    caplog: pytest.LogCaptureFixture

    def says(self, *args: str, code: int = 0) -> tuple[str, str, str]:
        """What a command said on stdout, on stderr and in logs."""
        self.caplog.clear()
        found = called([*args])
        out, err = self.capsys.readouterr()
        assert found == code, out + err
        return out, err, self.caplog.text

    def __call__(self, *args: str, code: int, words: str = "") -> list[str]:
        """The canaries in what a command said, which must hold `words`."""
        told = "".join(self.says(*args, code=code))
        assert words in told
        return seen_in(told)


@pytest.fixture(name="listener")
def _listener(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Listener:
    caplog.set_level(logging.DEBUG)
    return Listener(capsys, caplog)


@pytest.mark.parametrize("name", planted(0))
def test_no_command_tells_a_secret(
    port: int, listener: Listener, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On stores that work and on stores that do not: what asks no store is called beside those that
    work. As JSON, too, on one store of each exit code; else where the answers are rows.
    """
    store = planted(port)[name]
    benches.make_small(monkeypatch)
    monkeypatch.setattr(retrying, "PAUSES", (0.0, 0.0))
    monkeypatch.setenv("BLACKBOARD_CONNECTION_STRING", store.said)
    told: dict[str, list[str]] = {}
    heard: set[str] = set()
    # A worker on a store that works is a process of its own, below.
    of_worker = {"worker --until-idle -v --jobs jobs.py": 0} if store.code else {}
    asking = {line: well for line, well in LINES.items() if line not in WITHOUT_STORE}
    for line, well in (asking | of_worker if store.code else LINES).items():
        code, words = (well, "") if line in WITHOUT_STORE else (store.code or well, store.words)
        at = ("--store", store.url, "--board", name)
        told[line] = listener(*at, *line.split(), code=code, words=words)
        if name in AS_JSON or line.split()[0] in {"show", "log", "export", "why", "doctor"}:
            told[line] += listener(*at, "--json", *line.split(), code=code, words=words)
        heard |= {record.name.partition(".")[0] for record in listener.caplog.records}
    assert {line: seen for line, seen in told.items() if seen} == {}
    assert store.code == 2 or heard
    assert [file for file in folder.rglob("*") if holds_a_canary(file)] == []


def holds_a_canary(file: Path) -> bool:
    return file.is_file() and seen_in(file.read_text(errors="replace")) != []


def ran(store: Planted, *args: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    environ = {name: text for name, text in os.environ.items() if "BLACKBOARD" not in name}
    return subprocess.run(
        [sys.executable, "-W", "always", "-m", "blackboard", "--store", store.url, *args],
        env=environ | {"BLACKBOARD_CONNECTION_STRING": store.said, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(90),
    )


@pytest.mark.parametrize("name", ["key", "signature", "wrong_key"])
def test_no_worker_tells_a_secret(
    port: int, folder: Path, listener: Listener, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does what it leaves behind: its log at full length, the rows of the board, and files."""
    store = planted(port)[name]
    monkeypatch.setenv("BLACKBOARD_CONNECTION_STRING", store.said)
    board = ("--board", f"worked_{name}")
    here = ("--store", store.url, *board)
    kinds = {"works": "ok", "plain": "ok", "dumps": "ok", "fails": "failed", "breaks": "failed"}
    for kind in kinds if store.code is None else ():
        listener.says(*here, "add", kind, "--type", kind, "--set", "token=${CANARY}")
        opens = "token=${BLACKBOARD_CONNECTION_STRING}"
        listener.says(*here, "add", f"{kind}-of-store", "--type", kind, "--set", opens)
    done = ran(store, *board, "worker", "--until-idle", "-v")
    assert done.returncode == (store.code or 0), done.stderr
    assert store.words in done.stderr
    assert seen_in(done.stdout + done.stderr) == []
    assert "nclosed" not in done.stderr
    assert [file for file in folder.rglob("*") if holds_a_canary(file)] == []
    if store.code is None:
        logged = json.loads(listener.says(*here, "log", "--json")[0])
        told = kinds | {f"{kind}-of-store": outcome for kind, outcome in kinds.items()}
        assert {one["id"]: one["outcome"] for one in logged} == told
        rows = stored(port, board[1])
        assert len(rows) > 6
        assert [row for row in rows if seen_in(row)] == []


def rows_of(folder: Path) -> str:
    """All that a board in a file holds, as text."""
    with closing(sqlite3.connect(folder / "town.db")) as connection:
        return "\n".join(connection.iterdump())


KINDS = ("works", "plain", "fails", "breaks")
TOWN = ("--store", "town.db")
LOGGED = "logged ${CANARY} and https://ann?token=${CANARY}"


def declare(listener: Listener) -> None:
    """A board with an item of each kind, of the same name."""
    listener.says(*TOWN, "init")
    for kind in KINDS:
        how = ("--type", kind, "--every", "8h", "--set", "token=${CANARY}")
        listener.says(*TOWN, "add", kind, *how)


def is_told_by_name(folder: Path, listener: Listener, kind: str, said: str) -> None:
    """That it is there, and only the secret is not, in what a run said and left."""
    log, *_ = listener.says(*TOWN, "log", kind, "--output", "--json")
    assert seen_in(said + log + rows_of(folder)) == []
    (run,) = json.loads(log)
    assert run["output"] == "printed ${CANARY} https://ann?token=${CANARY} '${CANARY}'\n"
    result = {"token": "${CANARY}", "${CANARY}": [{"url": "https://ann?token=${CANARY}"}]}
    if run["outcome"] == "ok":
        assert run["result"] == result
    else:
        assert run["error"].startswith(f"RuntimeError: {result} were not enough\n")
    assert ("KeyError: '${CANARY}'" in log) is (kind == "breaks")


def test_what_handlers_quote_in_a_worker_is_told_by_its_name(
    folder: Path, listener: Listener
) -> None:
    """In all four ways."""
    declare(listener)
    told = ran(Planted("town.db"), "worker", "--until-idle", "-v", "--jobs", "jobs.py")
    logged = [line for line in told.stderr.splitlines() if LOGGED in line]
    assert sorted(json.loads(line)["type"] for line in logged) == sorted(KINDS), told.stderr
    for kind in KINDS:
        is_told_by_name(folder, listener, kind, told.stdout + told.stderr)


def test_what_handlers_quote_in_a_run_here_is_told_by_its_name(
    folder: Path, listener: Listener
) -> None:
    declare(listener)
    for kind in KINDS:
        code = 0 if kind in {"works", "plain"} else 1
        said = listener.says(*TOWN, "run", kind, "--here", code=code)
        assert LOGGED in said[1]
        is_told_by_name(folder, listener, kind, "".join(said))


@pytest.mark.usefixtures("folder")
def test_a_variable_that_is_not_set_is_named_in_one_line(listener: Listener) -> None:
    """Where its value is wanted, and nothing else is told."""
    listener.says(*TOWN, "init")
    listener.says(*TOWN, "add", "x", "--type", "works", "--set", "token=${MISSING}")
    assert listener.says(*TOWN, "run", "x", "--here", code=1)[1] == (
        "params.token: the environment variable MISSING is not set "
        "(set it where the worker runs; $${ stands for ${)\n"
    )


def stored(port: int, board: str) -> list[str]:
    """All rows of a board, as text."""
    client = TableClient(
        f"http://127.0.0.1:{port}/{ACCOUNT}",
        "town",
        credential=AzureNamedKeyCredential(ACCOUNT, KEY),
    )
    with client:
        return [
            repr(dict(entity))
            for entity in client.list_entities()
            if entity["PartitionKey"].startswith(board)
        ]


def test_an_emulator_that_cannot_start_tells_no_secret(port: int) -> None:
    done = ran(planted(port)["key"], "azurite", "--port", str(port))
    assert done.returncode == 2, done.stderr
    assert seen_in(done.stdout + done.stderr) == []


def test_a_canary_would_be_seen() -> None:
    """In every form: so the tests above can fail."""
    for secret in (KEY, WRONG_KEY, PARAM):
        assert seen_in(f"...{secret}...")
        assert seen_in(f"https://ann?x={quote(secret, safe='')}")
        assert seen_in(base64.b64encode(secret.encode()).decode())
    assert seen_in(SIGNATURE)
    assert seen_in(unquote(WRONG_SIGNATURE))
