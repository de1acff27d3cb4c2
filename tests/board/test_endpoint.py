"""Where a process listens, as people write it."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from blackboard.endpoint import Endpoint
from blackboard.errors import BadInput
from tests.support.ports import need_address, need_ipv6


@pytest.mark.parametrize(
    ("text", "processes", "endpoint"),
    [
        ("9100", 1, Endpoint("127.0.0.1", 9100)),
        ("0", 8, Endpoint("127.0.0.1", 0)),
        (":9000", 1, Endpoint("127.0.0.1", 9000)),
        ("0.0.0.0:9100", 1, Endpoint("0.0.0.0", 9100)),
        ("[::1]:9100", 2, Endpoint("::1", 9100)),
        ("[fe80::1%eth0]:9100", 1, Endpoint("fe80::1%eth0", 9100)),
        ("localhost:65535", 1, Endpoint("localhost", 65_535)),
    ],
)
def test_an_endpoint_is_a_port_or_a_host_and_a_port(
    text: str, processes: int, endpoint: Endpoint
) -> None:
    found = Endpoint.parse(text, "metrics", processes=processes)
    assert found == endpoint
    assert str(found).endswith(text)
    assert found.of(3).port == (endpoint.port + 3 if endpoint.port else 0)


@pytest.mark.parametrize(
    ("text", "processes"),
    [
        *[(one, 1) for one in ("", "x", "-1", "65536", "host:", "9100:host", "host:\u00b2")],
        *[(one, 1) for one in ("[::1", "[]:3", "[..]:3", "[::1:3", "::1]:3", "::1:3", "::3")],
        *[(one, 1) for one in ("[localhost]:3", "[[::1]]:3", "a:b:3", "(::1):3", "[::1\0]:3")],
        ("65535", 2),
        pytest.param("9" * 5000, 1, id="thousands of digits"),
    ],
)
def test_what_has_no_port_is_refused(text: str, processes: int) -> None:
    with pytest.raises(BadInput, match=r"metrics: .* is not an address with a port") as refused:
        Endpoint.parse(text, "metrics", processes=processes)
    assert "a port up to 65535" in refused.value.remedy


@contextmanager
def listening(host: str, port: int = 0) -> Iterator[int]:
    """Listens at all addresses of a host. Yields the port."""
    with ExitStack() as stack:
        listeners = Endpoint(host, port).listeners("metrics")
        yield {stack.enter_context(one).getsockname()[1] for one in listeners}.pop()


def connect(address: str, port: int) -> None:
    socket.create_connection((address, port)).close()


@pytest.mark.parametrize("host", ["::", "0::0"])
def test_all_addresses_of_ipv6_stand_for_those_of_ipv4_too(host: str) -> None:
    need_ipv6()
    with listening(host) as port:
        for address in ("127.0.0.1", "::1"):
            connect(address, port)
    with listening("::1") as port, pytest.raises(ConnectionRefusedError):
        connect("127.0.0.1", port)


def names(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Gives every name these addresses."""
    asked = socket.getaddrinfo

    def found(host: str, *args: Any, **options: Any) -> list[Any]:
        each = [host] if host in addresses else addresses
        return [one for address in each for one in asked(address, *args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", found)


def test_a_name_stands_for_all_its_addresses_that_are_of_this_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need_ipv6()
    names(monkeypatch, "10.7.7.7", "::1", "127.0.0.1", "::1")
    with listening("pages.example") as port:
        for address in ("127.0.0.1", "::1"):
            connect(address, port)


def test_a_port_that_is_taken_at_one_of_the_addresses_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need_address("127.0.0.2")
    names(monkeypatch, "127.0.0.2", "127.0.0.1")
    with listening("127.0.0.1") as port:
        with pytest.raises(BadInput, match="Address already in use"), listening("a.example", port):
            pass
        with listening("127.0.0.2", port):  # what was opened there has been closed
            pass


def test_a_free_port_is_free_at_all_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    need_address("127.0.0.2")
    names(monkeypatch, "127.0.0.2", "127.0.0.1")
    create, taken = socket.create_server, list[int]()

    def created(address: tuple[str, int], **options: Any) -> socket.socket:
        """A server; of the first port that is chosen, the second address is taken."""
        if address[1] and len(taken) < 1:
            taken.append(address[1])
            raise OSError(errno.EADDRINUSE, "Address already in use")
        return create(address, **options)

    monkeypatch.setattr(socket, "create_server", created)
    with listening("a.example") as port:
        assert port not in taken
        for address in ("127.0.0.2", "127.0.0.1"):
            connect(address, port)


def test_a_name_that_cannot_be_resolved_now_is_not_called_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def found(*_about: object, **_options: object) -> list[Any]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", found)
    with pytest.raises(BadInput, match="its name cannot be resolved now"):
        Endpoint("pages.example", 80).listeners("metrics")


def test_an_address_of_another_host_cannot_be_used() -> None:
    with pytest.raises(BadInput, match=r"10\.7\.7\.7:80 cannot be used: ") as refused:
        Endpoint("10.7.7.7", 80).listeners("metrics")
    assert refused.value.problem.endswith(os.strerror(errno.EADDRNOTAVAIL))
