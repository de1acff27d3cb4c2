"""The whole way of a token: a managed identity gives it, an emulator that speaks HTTPS takes it,
and commands in processes of their own use a board with it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.identity_servers import Https, emulator_over_https, giving, token
from tests.support.patience import patience

ROOT = Path(__file__).resolve().parents[2]
JOBS = """
from blackboard import handler


@handler("hello", every="8h")
async def hello(item, ctx):
    return {"greeted": item.id}
"""


@pytest.fixture(scope="module", name="https")
def _https(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Https]:
    with emulator_over_https(tmp_path_factory.mktemp("https")) as emulator:
        yield emulator


@dataclass(frozen=True)
class Host:
    """Runs commands in `folder`; its managed identity is given `token`, or nothing but `status`."""

    https: Https
    folder: Path
    token: str
    status: int = 200

    def __call__(self, line: str, *, code: int = 0, trusting: bool = True) -> str:
        """What the command answers on stdout, or on stderr when it is to fail. It never tells the
        token, and leaves nothing open.
        """
        environ = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("AZURE", "BLACKBOARD", "IDENTITY", "MSI", "SSL"))
        }
        environ |= {"BLACKBOARD_STORE": self.https.url, "PYTHONPATH": str(ROOT)}
        if trusting:
            environ["SSL_CERT_FILE"] = str(self.https.authority)
        with giving(self.token, status=self.status) as service:
            done = subprocess.run(
                [sys.executable, "-W", "always", "-m", "blackboard", *line.split()],
                cwd=self.folder,
                env=environ | service.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=patience(90),
            )
        told = done.stdout + done.stderr
        assert done.returncode == code, told
        assert [
            word for word in (self.token, "Warning", "nclosed", "Traceback") if word in told
        ] == []
        return done.stderr if code else done.stdout


def test_a_board_is_used_with_tokens_alone(https: Https, tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(JOBS)
    host = Host(https, tmp_path, token())
    assert host("init") == f"made the board 'blackboard' in {https.url}, with 1 shard\n"
    host("add davis keene --type hello --every 8h")
    host("worker --jobs hello.py --until-idle")
    runs = json.loads(host("log --json"))
    assert sorted((run["id"], run["outcome"], run["result"]["greeted"]) for run in runs) == [
        ("davis", "ok", "davis"),
        ("keene", "ok", "keene"),
    ]
    host("doctor")


@pytest.mark.parametrize("wrong", [{"lasts": -60}, {"audience": "https://vault.azure.net"}])
def test_a_token_that_is_not_taken_is_told_with_the_role(
    https: Https, tmp_path: Path, wrong: dict[str, object]
) -> None:
    """It is over, or for something else than tables."""
    told = Host(https, tmp_path, token(**wrong))("show", code=2)  # type: ignore[arg-type]
    assert told.startswith(
        f"blackboard: {https.url} refuses the managed identity of this host: Auth"
    )
    assert "Storage Table Data Contributor" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("status", [400, 403])
def test_a_host_without_an_identity_is_told_what_it_needs(
    https: Https, tmp_path: Path, status: int
) -> None:
    told = Host(https, tmp_path, token(), status)("show", code=2)
    assert told.startswith(
        f"blackboard: {https.url}: no token for the managed identity of this host"
    )
    assert "Storage Table Data Contributor" in told
    assert told.count("\n") == 1


def test_a_certificate_that_nobody_knows_is_not_trusted(https: Https, tmp_path: Path) -> None:
    told = Host(https, tmp_path, token())("show", code=2, trusting=False)
    assert "is not trusted" in told
    assert told.count("\n") == 1
