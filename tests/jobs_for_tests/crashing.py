"""Handlers that run in child processes: ones that harm their process, or never end."""

# ruff: noqa: T201 - printing is what is tested

import ctypes
import os
import re
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path

from blackboard import Context, Item, handler


def told(item: Item, ctx: Context) -> None:
    """Say that the handler runs; from here on it says no more."""
    print("about to", flush=True)
    ctx.progress(os.getpid(), 1)


@handler("die")
def die(item: Item, ctx: Context) -> None:
    told(item, ctx)
    match item.params["how"]:
        case "exit":
            os._exit(3)
        case "segfault":
            ctypes.string_at(0)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "terminated":
            os.kill(os.getpid(), signal.SIGTERM)


@handler("never-ends")
def never_end(item: Item, ctx: Context) -> None:
    told(item, ctx)
    match item.params["how"]:
        case "sleep":
            time.sleep(600)
        case "spin":
            while True:
                pass
        case "regex":
            re.match(r"(a+)+$", "a" * 60 + "b")
        case "hold-the-lock":
            ctypes.PyDLL(None).sleep(600)
        case "print":
            while True:
                print("over and over")


@handler("hold-the-lock-for")
def hold_the_lock_for_a_while(item: Item, ctx: Context) -> str:
    """C code that keeps every other thread of the process from running."""
    told(item, ctx)
    ctypes.PyDLL(None).usleep(int(item.params["seconds"] * 1e6))
    return "survived"


@handler("with-grandchild")
def start_another_process_and_wait(item: Item, ctx: Context) -> None:
    process = subprocess.Popen(["sleep", "600"])
    ctx.progress(process.pid, 1)
    time.sleep(600)


@handler("break-the-connection")
def break_the_connection(item: Item, ctx: Context) -> None:
    """Harm the socket that the process has to its worker."""
    match item.params["how"]:
        case "close":
            os.closerange(3, 256)
        case "end":
            to_worker().shutdown(socket.SHUT_WR)
            time.sleep(600)
        case "nonsense":
            to_worker().sendall(b"\0\0\0\2{}")
            time.sleep(600)
        case "too large":
            to_worker().sendall(b"\xff\xff\xff\xff")
            time.sleep(600)


def to_worker() -> socket.socket:
    for entry in Path("/dev/fd").iterdir():
        if entry.exists() and stat.S_ISSOCK(os.fstat(int(entry.name)).st_mode):
            return socket.socket(fileno=os.dup(int(entry.name)))
    raise LookupError("no socket")


@handler("silence-the-output")
def close_what_is_printed_to(item: Item, ctx: Context) -> str:
    os.close(1)
    os.close(2)
    return "still here"
