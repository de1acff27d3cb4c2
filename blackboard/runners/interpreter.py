"""The processes of this package that run Python: the command line that starts one, and what one
does first.

It imports next to nothing: readers of feeds and every command begin with it.
"""

import os
import signal
import sys
from collections.abc import Iterable
from importlib import import_module

from blackboard.errors import BadInput

_SPAWN = "multiprocessing.spawn"
"""The module that keeps what `multiprocessing.set_executable` was given."""
_PR_SET_PDEATHSIG = 1
_PYTHONS = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""Signals that Python itself ignores."""
_NAMES = ("python", "pypy", "graalpy")
"""How the files of interpreters are named. A program that runs Python may have it in its name, too,
such as `uwsgi_python3`."""
STARTING = (OSError, MemoryError, RuntimeError, BadInput)
"""What the start of a process raises where it cannot be; RuntimeError: for want of a thread, say;
BadInput: by `executable`."""


def executable() -> str:
    """The interpreter of child processes: the one of this process, or the one that the program has
    set by `multiprocessing.set_executable`. Raises BadInput where that is not Python but a program
    in which Python is embedded (PyInstaller, uWSGI ...), which would start itself again.
    """
    path = own = sys.executable or ""
    if _SPAWN in sys.modules:
        # Not out of sys.modules: another thread may be importing it, which this waits for.
        path = os.fsdecode(import_module(_SPAWN).get_executable() or "")
    is_program = getattr(sys, "frozen", False) and path == own
    name = path.rpartition("/")[2].lstrip(".").lower()  # of NixOS: .python3.12-wrapped
    if is_program or not name.startswith(_NAMES):
        problem = f"{path!r}, which is to run child processes, is not Python"
        remedy = "use `async def` handlers, or name one by multiprocessing.set_executable(...)"
        raise BadInput("python", problem, remedy)
    return path


def python(*arguments: str) -> list[str]:
    """A command line of Python with the options of this process (-O, -W, -X utf8, -I ...). Raises
    BadInput as `executable` does.
    """
    import subprocess  # noqa: PLC0415 - not for a command

    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # noqa: SLF001
    return [executable(), *options, *arguments]


def search_path() -> list[str]:
    """Where Python finds modules. Python ignores entries that are not text, such as a Path."""
    return [path for path in sys.path if isinstance(path, str)]


def program(code: str) -> str:
    """For `python -c`: this code, with the search path of this process."""
    return f"import sys; sys.path[:] = {search_path()!r}; {code}"


def reset_signals(numbers: Iterable[int]) -> None:
    """Unblocks all signals, and gives those of `numbers` that are ignored their usual action: both
    are inherited from the program that started this process. Where SIGCHLD is ignored the exit
    code of each command reads as 0.
    """
    for number in set(numbers) - _PYTHONS:
        if signal.getsignal(number) is signal.SIG_IGN:
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def die_with(parent: int) -> None:
    """Ends this process when its parent has ended: on Linux whenever that is, elsewhere only where
    it is so already.
    """
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - not for a command

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before that call
        os._exit(1)
