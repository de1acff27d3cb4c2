"""The program `blackboard`, also called as `python -m blackboard`."""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Until the command is imported Ctrl-C ends the process at once: no import has to handle it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from blackboard.cli import main

if __name__ == "__main__":
    main()
