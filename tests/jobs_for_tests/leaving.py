"""Handlers that run in child processes: ones that leave something behind for the next."""

import _thread
import ctypes
import faulthandler
import gc
import locale
import logging.config
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from blackboard import Context, Item, handler

MINE: ContextVar[str] = ContextVar("MINE", default="nothing")
KEPT: list[Any] = []
LOGGER = logging.getLogger(__name__)
OPENED = os.open(__file__, os.O_RDONLY)
"""What a module does when it is imported stays."""
os.environ["SET_BY_THE_MODULE"] = "1"


def left_process() -> None:
    KEPT.append(subprocess.Popen(["sleep", "600"]))


def left_socket() -> None:
    KEPT.append(socket.socket())


def left_stdout() -> None:
    KEPT.append(sys.stdout)
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115


def left_alarm() -> None:
    signal.setitimer(signal.ITIMER_REAL, 600)


def left_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (1, hard))


def left_nonblocking() -> None:
    os.set_blocking(1, False)


def left_timezone() -> None:
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()
    del os.environ["TZ"]


def left_core() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def left_no_descriptor() -> None:
    """No file can be opened any more, not even the list of those that are open."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
    with suppress(OSError):
        while True:
            KEPT.append(Path(__file__).open())  # noqa: SIM115


WAYS: dict[str, Callable[[], object]] = {
    "a variable": lambda: os.environ.update(SECRET="of this item"),
    "a variable of C": lambda: ctypes.CDLL(None).setenv(b"SECRET", b"of this item", 1),
    "no variables": os.environ.clear,
    "a folder": lambda: os.chdir(Path(__file__).parent),
    "an umask": lambda: os.umask(0o777),
    "a closed stdout": lambda: os.close(1),
    "a closed stream": sys.stdout.close,
    "another stream": left_stdout,
    "a stdout that does not wait": left_nonblocking,
    "no descriptor that is free": left_no_descriptor,
    "a file": lambda: KEPT.append(Path(__file__).open()),  # noqa: SIM115
    "a socket": left_socket,
    "a descriptor": lambda: os.dup(1),
    "an alarm": lambda: signal.alarm(600),
    "a timer": left_alarm,
    "a signal handler": lambda: signal.signal(signal.SIGUSR1, lambda *_: None),
    "an ignored signal": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "a blocked signal": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]),
    "a socket timeout": lambda: socket.setdefaulttimeout(0.001),
    "a limit": left_limit,
    "a priority": lambda: os.nice(1 if os.nice(0) < 19 else -1),
    "a locale": lambda: locale.setlocale(locale.LC_ALL, "C"),
    "a path": lambda: sys.path.insert(0, "/tmp"),
    "a trace": lambda: sys.settrace(lambda *_: None),
    "no garbage collection": gc.disable,
    "a recursion limit": lambda: sys.setrecursionlimit(5_000),
    "a thread": lambda: threading.Thread(target=time.sleep, args=(600,), daemon=True).start(),
    "a thread that Python does not list": lambda: _thread.start_new_thread(time.sleep, (600,)),
    "a time zone": left_timezone,
    "no logging": lambda: logging.disable(logging.CRITICAL),
    "loggers that are switched off": lambda: logging.config.dictConfig({"version": 1}),
    "another factory of records": lambda: logging.setLogRecordFactory(
        lambda *_: logging.makeLogRecord({})
    ),
    "a limit of digits": lambda: sys.set_int_max_str_digits(640),
    "a process": left_process,
}


if len(os.sched_getaffinity(0)) > 1:
    WAYS["one core of many"] = left_core


@handler("leave-behind")
def leave_something_behind(item: Item, ctx: Context) -> Any:
    WAYS[item.params["what"]]()
    return [os.getpid(), *(one.pid for one in KEPT if isinstance(one, subprocess.Popen))]


@contextmanager
def no_descriptor() -> Iterator[None]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    yield


@handler("take-all-descriptors", resources=no_descriptor)
def call_without_a_descriptor(item: Item, ctx: Context) -> int:
    return os.getpid()


@handler("plan-a-dump")
def plan_a_dump(item: Item, ctx: Context) -> int:
    faulthandler.dump_traceback_later(1.0, exit=True)
    return os.getpid()


@handler("rest")
def outlast_what_was_planned(item: Item, ctx: Context) -> int:
    time.sleep(item.params["seconds"])
    return os.getpid()


@handler("tidy")
def use_much_and_leave_nothing(item: Item, ctx: Context) -> Any:
    """What well-behaved handlers do: all of it is put back, or is of this run alone."""
    before = MINE.get()
    MINE.set("of this run")
    handled = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, handled)
    saved = dict(os.environ)
    os.environ["SECRET"] = "of this item"
    os.environ.clear()
    os.environ.update(saved)
    with Path(__file__).open(), socket.socket():
        subprocess.run(["true"], check=True)
    thread = threading.Thread(target=time.monotonic)
    thread.start()
    thread.join()
    KEPT.append("more and more")
    gc.collect()
    return [os.getpid(), before]
