"""`blackboard serve` begins only where the pages are not open to others."""

import socket
import sys
from collections.abc import Iterator

import pytest

import blackboard as package
from blackboard.cli.serve import check_open
from blackboard.errors import BadInput
from tests.cli.command_line import CommandLine, blackboard
from tests.support.ports import need_ipv6

__all__ = ["blackboard"]

pytestmark = pytest.mark.of_sqlite("what a command says before it reads a store")
TOKEN = "0123456789abcdef"


@pytest.fixture(name="town")
def _town(blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.delenv("BLACKBOARD_WEB_TOKEN", raising=False)
    blackboard("init")
    return blackboard


@pytest.fixture(name="taken")
def _taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("--listen 0.0.0.0:0", "listen: on 0.0.0.0 others could see the board"),
        ("--listen [::]:0", "listen: on :: others could see the board"),
        ("--listen 10.0.0.7:0", "BLACKBOARD_WEB_TOKEN"),
        ("--proxy 10.0.0.7", "proxy: a proxy alone proves nothing"),
        ("--user-header X-User", "user-header: anybody could send this header"),
        ("--user-header X-User: --proxy 10.0.0.7", "user-header: 'X-User:' is not a name"),
        ("--user-header X-Üser --proxy 10.0.0.7", "user-header: 'X-Üser' is not a name"),
        ("--user-header X-User --proxy nonsense", "proxy: 'nonsense' is not an address"),
        ("--allow-host http://a.example/", "allow-host: 'http://a.example/' is not a name"),
        ("--allow-host *", "allow-host: '*' is not a name"),
        ("--allow-host *.a.example", "allow-host: '*.a.example' is not a name"),
        ("--listen nonsense", "'nonsense' is not an address with a port"),
        ("--prefix board", "prefix: 'board' is not a path"),
        ("--prefix /board/", "prefix: '/board/' is not a path"),
        ("--prefix /a%20b", "prefix: '/a%20b' is not a path"),
        ("--prefix /a/../b", "prefix: '/a/../b' is not a path"),
        ("--prefix /runs", "prefix: /runs is an address of the pages"),
        ("--prefix /api/v1", "prefix: /api is an address of the pages"),
        ("--listen 127.0.0.1", "is not an address with a port"),
        ("--listen 127.0.0.1:65536", "is not an address with a port"),
        ("--listen 127.0.0.1:-1", "is not an address with a port"),
        (f"--listen {'9' * 5000}", "is not an address with a port"),
    ],
)
def test_what_is_refused(town: CommandLine, args: str, words: str) -> None:
    assert words in town.refused("serve", *args.split())


def test_a_short_token(town: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLACKBOARD_WEB_TOKEN", "hunter2")
    said = town.refused("serve", "--listen", "0.0.0.0:0")
    assert "BLACKBOARD_WEB_TOKEN: it is too short" in said
    assert "hunter2" not in said


def test_a_port_that_is_taken(town: CommandLine, taken: int) -> None:
    where = f"127.0.0.1:{taken}"
    remedy = "another port, 0 for any that is free, or another host"
    assert town.refused("serve", "--listen", str(taken)) == (
        f"listen: {where} cannot be used: Address already in use ({remedy})"
    )


@pytest.mark.parametrize("host", ["::", "::1"])
def test_an_ipv6_address_is_listened_on(
    town: CommandLine, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("BLACKBOARD_WEB_TOKEN", TOKEN)
    need_ipv6()
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        where = f"[{host}]:{taken.getsockname()[1]}"
        said = town.refused("serve", "--listen", where)
        assert f"{where} cannot be used: Address already in use" in said


def test_a_host_that_none_can_have(town: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    for host in (f"{'a' * 70}.example", ".."):
        monkeypatch.setenv("BLACKBOARD_WEB_TOKEN", TOKEN)
        assert "listen" in town.refused("serve", "--listen", f"{host}:0")


@pytest.mark.parametrize("missing", ["starlette", "jinja2", "uvicorn", "prometheus_client"])
def test_without_the_extra(
    town: CommandLine, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    for name in list(sys.modules):
        if name.startswith(("blackboard.web", "blackboard.metrics", missing)):
            monkeypatch.delitem(sys.modules, name)
    for name in ("web", "metrics"):
        monkeypatch.delattr(package, name, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    assert "pip install 'blackboard-scheduler[web]'" in town.refused("serve", "--listen", "0")


def test_what_may_be_served(town: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def named() -> str:
        asked.append("a name server, which may take seconds")
        return "a.example"

    monkeypatch.setattr(socket, "getfqdn", named)
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        for host in ("127.0.0.1", "localhost"):
            assert "Address already in use" in town.refused("serve", "--listen", f"{host}:{port}")
    assert asked == []
    for host in ("127.0.0.1", "localhost", "::1"):
        check_open(host, token="", user_header="")
    check_open("0.0.0.0", token=TOKEN, user_header="")
    check_open("0.0.0.0", token="", user_header="x")
    for host in ("0.0.0.0", "", "::", "127.0.0.1.evil.example"):
        with pytest.raises(BadInput, match="listen"):
            check_open(host, token="", user_header="")
