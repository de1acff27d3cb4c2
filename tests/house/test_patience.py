"""Tests bear a machine that is busy, and a shell that runs them in the background."""

import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from tests.support import patience


@pytest.mark.parametrize(
    ("passed", "now", "over"), [(9, 1.0, False), (11, 1.0, True), (11, 2.0, False), (21, 2.0, True)]
)
def test_who_waits_gives_up_later_where_the_machine_became_slower(
    passed: float, now: float, monkeypatch: pytest.MonkeyPatch, *, over: bool
) -> None:
    monkeypatch.setattr(patience, "SLOWNESS", 1.0)
    monkeypatch.setattr(patience, "measured", lambda: now)
    assert patience.is_over(time.monotonic() - passed, 10) is over


@pytest.mark.parametrize(
    ("took", "now", "within"), [(9, 1.0, True), (11, 1.0, False), (19, 2.0, True), (21, 2.0, False)]
)
def test_what_took_longer_may_have_been_done_by_a_slower_machine(
    took: float, now: float, monkeypatch: pytest.MonkeyPatch, *, within: bool
) -> None:
    monkeypatch.setattr(patience, "SLOWNESS", 1.0)
    monkeypatch.setattr(patience, "measured", lambda: now)
    assert patience.is_within(took, 10) is within


def test_deadlines_are_multiples_of_what_was_measured_and_never_shorter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert patience.measured() >= 1.0
    assert patience.patience(30) >= 30
    monkeypatch.setattr(patience, "SLOWNESS", 3.0)
    assert patience.patience(30) == 90


def test_a_timeout_is_of_this_machine(request: pytest.FixtureRequest) -> None:
    assert request.config.getoption("timeout") == 300 * patience.SLOWNESS


def test_sigint_is_not_ignored() -> None:
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def test_also_not_in_the_background_of_a_shell() -> None:
    """Where a shell ignores it for what it starts there."""
    this = f"{__file__}::{test_sigint_is_not_ignored.__name__}"
    command = shlex.join([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", this])
    environ = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        ["sh", "-c", f"{command} & wait $!"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
