"""Finds what a handler changed in its process and did not put back: the next run would meet it.

Compares the state of the process before the first run, when the module of the handler has been
imported, with the state after each run. Does not compare the variables of modules, which often are
meant to be kept (a cache, a connection made at import), nor what C code keeps to itself.
"""

import _signal  # type: ignore[import-not-found] # what `signal` makes enumerations of
import ctypes
import faulthandler
import fcntl
import gc
import os
import resource
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

State = Mapping[str, Any]
"""By the name of what it is of."""

_C = ctypes.CDLL(None)
_SETLOCALE = _C.setlocale
_SETLOCALE.restype = ctypes.c_char_p
_LC_ALL: Final = 6
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_SIGNALS = [int(number) for number in signal.valid_signals()]
_LIMITS = [number for name, number in vars(resource).items() if name.startswith("RLIMIT_")]


def state() -> State:
    """Everything that is compared. On the main thread. A tenth of a millisecond."""
    return {name: look() for name, look in _LOOKS.items()}


def left(before: State) -> list[str]:
    """The names of what is not as it was. A dump that `faulthandler` is to make later, which may
    end the process, does not show: it is called off.
    """
    faulthandler.cancel_dump_traceback_later()
    after = state()
    found = [name for name in before if after[name] != before[name]]
    if after[_THREADS] > before[_THREADS]:
        found.append(_THREADS)
    elif _THREADS in found:
        found.remove(_THREADS)  # one that the module had started has ended
    if _has_children():
        found.append("a process")
    return found


_THREADS: Final = "a thread"


def _environment() -> object:
    """As C code sees it, where that can be seen: what Python sets is there, too."""
    try:
        lines = ctypes.POINTER(ctypes.c_char_p).in_dll(_C, "environ")
    except ValueError:
        return id(os.environ), dict(os.environ)
    found: list[bytes] = []
    while lines and (line := lines[len(found)]) is not None:
        found.append(line)
    return id(os.environ), sorted(found)  # what was taken out and put back is at another place


def _folder() -> object:
    places = (Path(), Path("/"))  # by what they are: a name may be another folder's by now
    return [(one.st_dev, one.st_ino) for one in (place.stat() for place in places)]


def _umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


def _descriptors() -> dict[int, object]:
    """What each open descriptor is of, and how it was opened."""
    found: dict[int, object] = {}
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - paths of these are of no use
        with suppress(OSError):  # the listing's own, which is closed by now
            about = os.fstat(int(name))
            kind = stat.S_IFMT(about.st_mode)
            flags = fcntl.fcntl(int(name), fcntl.F_GETFL)
            found[int(name)] = (about.st_dev, about.st_ino, about.st_rdev, kind, flags)
    return found


def _streams() -> object:
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return [(id(one), getattr(one, "closed", True)) for one in streams]


def _signals() -> object:
    handlers = [_signal.getsignal(number) for number in _SIGNALS]  # without their names, at once
    return handlers, signal.pthread_sigmask(signal.SIG_BLOCK, ())


def _alarms() -> object:
    """Whether there are any; how much is left of them changes by itself."""
    return [signal.getitimer(one) != (0.0, 0.0) for one in _TIMERS]


def _limits() -> object:
    limits = [resource.getrlimit(one) for one in _LIMITS]
    cores = os.sched_getaffinity(0) if sys.platform == "linux" else None
    return limits, os.getpriority(os.PRIO_PROCESS, 0), cores


def _user() -> object:
    return os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups()


def _interpreter() -> object:
    hooks = (sys.gettrace(), sys.getprofile(), sys.excepthook, threading.excepthook)
    digits = sys.get_int_max_str_digits()
    return hooks, sys.getrecursionlimit(), sys.getswitchinterval(), gc.isenabled(), digits


def _timezone() -> object:
    return time.tzname, time.timezone, time.altzone, time.daylight


def _threads() -> int:
    """Of the system, where they can be counted: `threading` does not know all of them."""
    tasks = "/proc/self/task"
    on_linux = sys.platform == "linux"
    return len(os.listdir(tasks)) if on_linux else threading.active_count()  # noqa: PTH208


def _locale() -> object:
    return _SETLOCALE(_LC_ALL, None) if sys.platform == "linux" else None


_LOOKS: Mapping[str, Callable[[], object]] = {
    "the environment": _environment,
    "the working folder": _folder,
    "the umask": _umask,
    "open files": _descriptors,
    "stdin, stdout or stderr": _streams,
    "signal handlers": _signals,
    "an alarm": _alarms,
    "limits or priority": _limits,
    "the user": _user,
    "the default timeout of sockets": socket.getdefaulttimeout,
    "the locale": _locale,
    "the local time zone": _timezone,
    "where modules are found": lambda: list(sys.path),
    "the interpreter": _interpreter,
    _THREADS: _threads,
}


def _has_children() -> bool:
    if sys.platform != "linux":
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
