"""A test that wants the machine alone waits for those that use it, and is not overtaken."""

import fcntl
import os
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread

import pytest

from tests.proof.chaos import machine
from tests.support.processes import eventually


class User(Thread):
    """Has the machine from when it gets it until it may go."""

    def __init__(self, name: str, order: "SimpleQueue[str]", *, alone: bool) -> None:
        super().__init__(name=name, daemon=True)
        self.order, self.alone, self.may_go = order, alone, Event()
        self.start()

    def run(self) -> None:
        with machine.the_machine(alone=self.alone):
            self.order.put(self.name)
            self.may_go.wait()
            self.order.put(f"{self.name} goes")

    def go(self) -> None:
        self.may_go.set()
        self.join()


def is_waited_for() -> bool:
    """Whether somebody stands at the head of the queue."""
    queue = os.open(machine.QUEUE, os.O_RDONLY)
    try:
        fcntl.flock(queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(queue)
    return False


def test_who_wants_it_alone_waits_and_is_not_overtaken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "machine").touch()
    monkeypatch.setattr(machine, "MACHINE", tmp_path / "machine")
    monkeypatch.setattr(machine, "QUEUE", tmp_path)
    order = SimpleQueue[str]()
    first = User("first", order, alone=False)
    assert order.get() == "first"
    beside = User("beside", order, alone=False)
    assert order.get() == "beside"
    alone = User("alone", order, alone=True)
    eventually(is_waited_for, "it waits for the machine")
    later = User("later", order, alone=False)
    first.go()
    beside.go()
    assert [order.get() for _ in range(3)] == ["first goes", "beside goes", "alone"]
    alone.go()
    assert [order.get() for _ in range(2)] == ["alone goes", "later"]
    later.go()
