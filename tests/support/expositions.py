"""Requests the metrics of workers, and parses them with prometheus_client."""

import urllib.request
from collections.abc import Iterator
from urllib.error import HTTPError

from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.support.patience import patience
from tests.support.processes import Started, eventually

PREFIX = "blackboard_"


def families(body: bytes) -> Iterator[Metric]:
    """The metrics of a response. Raises ValueError where it is in neither format."""
    text = body.decode()
    if text.endswith("# EOF\n"):
        yield from openmetrics.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    else:
        yield from text_string_to_metric_families(text)


def samples(body: bytes, prefix: str = PREFIX) -> dict[tuple[str, ...], float]:
    """Each value, by the name without its prefix, and the values of its labels in the order of
    their names.
    """
    return {
        (one.name.removeprefix(prefix), *(value for _, value in sorted(one.labels.items()))): (
            one.value
        )
        for family in families(body)
        for one in family.samples
    }


def urls(started: Started, count: int = 1) -> list[str]:
    """The URLs at which the metrics are served, without the path."""

    def found() -> list[str]:
        assert started.process.poll() is None, started.text
        served = [one for one in started.events if one["event"] == "metrics served"]
        return [one["message"].removesuffix("/metrics") for one in served]

    return eventually(
        lambda: there if len(there := found()) == count else [], "the metrics are served"
    )


def get(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=patience(30)) as answer:
            return int(answer.status), bytes(answer.read())
    except HTTPError as problem:
        with problem:
            return problem.code, problem.read()
