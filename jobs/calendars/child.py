"""The parser's process: reads feeds from its input, writes what it understood to its output.

It is started by path, not as part of a package, because the folder of a job may be loaded under
any name. It dies with its parent, and takes no more memory than it was given.
"""

import ctypes
import os
import resource
import signal
import sys
import warnings
from typing import BinaryIO

import msgspec

from .expand import parse
from .records import ANSWER, HEAD, Ask, Parsed

_PR_SET_PDEATHSIG = 1


def main(parent: int, memory: int) -> None:
    """Serves feeds until its input ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    warnings.simplefilter("ignore")
    while _serve(sys.stdin.buffer, sys.stdout.buffer, memory):
        pass


def _serve(source: BinaryIO, sink: BinaryIO, memory: int) -> bool:
    head = source.read(HEAD.size)
    if len(head) < HEAD.size:
        return False
    request, body = HEAD.unpack(head)
    ask = msgspec.json.decode(source.read(request), type=Ask)
    feed = source.read(body)
    try:
        answer = msgspec.json.encode(parse(feed, ask))
    except (MemoryError, RecursionError):
        answer = msgspec.json.encode(Parsed(error=f"needs more than {memory >> 20} MiB of memory"))
    sink.write(ANSWER.pack(len(answer)) + answer)
    sink.flush()
    return True
