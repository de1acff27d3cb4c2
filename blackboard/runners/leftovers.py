"""What a run leaves behind in its child process that could affect the next run.

After a run that failed, or changed the process in such a way, the worker ends this process. The
state of the process before the first run, when the module of the handler has been imported, is
compared with the state after each run. Not compared are the variables of modules, which often are
meant to stay (a cache, a connection made at import), and the internal state of C code.
"""

import _signal  # type: ignore[import-not-found] # what `signal` makes enumerations of
import ctypes
import faulthandler
import fcntl
import gc
import logging
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
from typing import Any, Final

State = Mapping[str, Any]
"""The state of each part of the process that is compared, by the name of the part."""

_C = ctypes.CDLL(None)
_SETLOCALE = _C.setlocale
_SETLOCALE.restype = ctypes.c_char_p
_LC_ALL: Final = 6
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_SIGNALS = [int(number) for number in signal.valid_signals()]
_LIMITS = {number for name, number in vars(resource).items() if name.startswith("RLIMIT_")}


def state() -> State:
    """Everything that is compared. To be called on the main thread. Takes 0.1 ms."""
    return {**{name: look() for name, look in _LOOKS.items()}, **_descriptors()}


def first_state() -> State:
    """The state before the first run of a type. A thread that was joined is in the system's list
    for a moment longer; counted here, it would hide one that a run leaves.
    """
    _has_more_threads(threading.active_count())
    return state()


def left(before: State, *, own_sockets: int = 0) -> list[str]:
    """The names of the parts that have changed; `own_sockets` more may be open, which the process
    opens for itself. A dump that is set for later by `faulthandler`,
    which may end the process, cannot be found, and is cancelled.
    """
    faulthandler.cancel_dump_traceback_later()
    after = state()
    changed = [name for name in before if name != _THREADS and after[name] != before[name]]
    if _SOCKETS in changed and 0 <= len(after[_SOCKETS]) - len(before[_SOCKETS]) <= own_sockets:
        changed.remove(_SOCKETS)
    if after[_THREADS] > before[_THREADS] and _has_more_threads(before[_THREADS]):
        changed.append(_THREADS)  # fewer are no harm: a thread of the module has ended
    if _has_children():
        changed.append(_PROCESS)
    return changed


_FILES: Final = "open files"
_SOCKETS: Final = "open sockets"
_THREADS: Final = "a thread"
_LOOKS_FOR_THREADS = 50
_PROCESS: Final = "a process"
OF_RESOURCES: Final = (_FILES, _SOCKETS, _THREADS, _PROCESS)
"""Changes that are ignored after a run whose handler has resources."""


try:
    _ENVIRON: Any = ctypes.POINTER(ctypes.c_char_p).in_dll(_C, "environ")
except ValueError:  # it cannot be read
    _ENVIRON = None


def _environment() -> object:
    """The environment of C code, which includes what Python sets."""
    if _ENVIRON is None:
        return id(os.environ), dict(os.environ)
    lines: list[bytes] = []
    while _ENVIRON and (line := _ENVIRON[len(lines)]) is not None:
        lines.append(line)
    return id(os.environ), sorted(lines)  # one that is removed and set again moves


def _folder() -> object:
    """Not their names, which may belong to other folders by now."""
    folders = (os.stat("."), os.stat("/"))  # noqa: PTH116 - as quickly as can be
    return [(folder.st_dev, folder.st_ino) for folder in folders]


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _descriptors() -> State:
    """The file of each open descriptor, and how it was opened."""
    files: dict[int, object] = {}
    sockets: dict[int, object] = {}
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - numbers, not paths
        with suppress(OSError):  # the listing's own, which is closed by now
            about = os.fstat(int(name))
            kind = stat.S_IFMT(about.st_mode)
            flags = fcntl.fcntl(int(name), fcntl.F_GETFL)
            group = sockets if kind == stat.S_IFSOCK else files
            group[int(name)] = (about.st_dev, about.st_ino, about.st_rdev, kind, flags)
    return {_FILES: files, _SOCKETS: sockets}


def _streams() -> object:
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return [(id(stream), getattr(stream, "closed", True)) for stream in streams]


def _signals() -> object:
    handlers = [_signal.getsignal(number) for number in _SIGNALS]  # faster than with enumerations
    return handlers, signal.pthread_sigmask(signal.SIG_BLOCK, ())


def _alarms() -> object:
    """Whether each timer is set; the time left changes by itself."""
    return [signal.getitimer(timer) != (0.0, 0.0) for timer in _TIMERS]


def _limits() -> object:
    limits = [resource.getrlimit(limit) for limit in _LIMITS]
    cores = os.sched_getaffinity(0) if sys.platform == "linux" else None
    return limits, os.getpriority(os.PRIO_PROCESS, 0), cores


def _user() -> object:
    return os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups()


def _interpreter() -> object:
    hooks = (sys.gettrace(), sys.getprofile(), sys.excepthook, threading.excepthook)
    digits = sys.get_int_max_str_digits()
    return hooks, sys.getrecursionlimit(), sys.getswitchinterval(), gc.isenabled(), digits


def _logging() -> object:
    """What keeps all records, or those of a logger, from being kept. Levels and handlers are not
    compared: many handlers set them in each run, each time the same.
    """
    manager = logging.root.manager
    loggers = [logging.root, *manager.loggerDict.copy().values()]
    silent = [
        logger.name for logger in loggers if isinstance(logger, logging.Logger) and logger.disabled
    ]
    return manager.disable, logging.getLogRecordFactory(), silent


def _timezone() -> object:
    return time.tzname, time.timezone, time.altzone, time.daylight


def _threads() -> int:
    """All threads of the process on Linux; `threading` does not count those of C code."""
    tasks = "/proc/self/task"
    on_linux = sys.platform == "linux"
    return len(os.listdir(tasks)) if on_linux else threading.active_count()  # noqa: PTH208


def _has_more_threads(number: int) -> bool:
    """Whether there are more than `number` threads. Looks again for a while: one that was joined
    is in the system's list for a moment longer.
    """
    for _ in range(_LOOKS_FOR_THREADS):
        if _threads() <= number:
            return False
        time.sleep(0.001)
    return True


def _locale() -> object:
    return _SETLOCALE(_LC_ALL, None) if sys.platform == "linux" else None


_LOOKS: Mapping[str, Callable[[], object]] = {
    "the environment": _environment,
    "the working folder": _folder,
    "the umask": _umask,
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
    "what is logged": _logging,
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
