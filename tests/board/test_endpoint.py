"""Where a process listens, as people write it."""

import errno
import os

import pytest

from blackboard.endpoint import Endpoint
from blackboard.errors import BadInput


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


@pytest.mark.parametrize(
    "problem",
    [
        OSError(errno.EADDRNOTAVAIL, "error while attempting to bind on address ('10.7.7.7', 80)"),
        OSError("could not bind on any address out of [('10.7.7.7', 80)]"),
    ],
)
def test_an_address_of_another_host_cannot_be_used(problem: OSError) -> None:
    """As asyncio says it, and as it does from Python 3.13 on."""
    refused = Endpoint("10.7.7.7", 80).unusable("metrics", problem)
    assert refused.problem == f"10.7.7.7:80 cannot be used: {os.strerror(errno.EADDRNOTAVAIL)}"
