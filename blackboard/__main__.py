"""The program `blackboard`, also called as `python -m blackboard`."""

import signal
import sys

from blackboard.errors import lacking_package

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Until the command is imported Ctrl-C ends the process at once: no import has to handle it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

try:
    from blackboard.cli import main
except ModuleNotFoundError as missing:
    if not (problem := lacking_package(missing)):
        raise
    print(f"blackboard: {problem}", file=sys.stderr)  # noqa: T201 - click may be what is missing
    sys.exit(2)

if __name__ == "__main__":
    main()
