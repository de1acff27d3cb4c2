"""Handlers that run in child processes: well-behaved ones."""

# ruff: noqa: T201 - printing is what is tested

import ctypes
import dataclasses
import logging
import os
import subprocess
import sys
import threading
from typing import Any

from blackboard import BlackboardError, Context, Fail, Item, Retry, Skip, handler


@handler("describe", every="8h", timeout="10m", retries=2, fenced=True, slots=3)
def describe(item: Item, ctx: Context) -> Any:
    """All that a handler is given, and where it runs."""
    return {
        "id": item.id,
        "type": item.type,
        "params": dict(item.params),
        "due": ctx.due.isoformat(),
        "fence": ctx.fence,
        "attempt": ctx.attempt,
        "worker": ctx.worker,
        "fenced": ctx.fenced,
        "settings": dict(ctx.settings),
        "lost": bool(ctx.lost),
        "pid": os.getpid(),
        "on_main_thread": threading.current_thread() is threading.main_thread(),
        "stdin": sys.stdin.read(),
    }


@handler("time-left")
def say_the_time_that_is_left(item: Item, ctx: Context) -> Any:
    return ctx.time_left()


@handler("return")
def return_what_is_asked_for(item: Item, ctx: Context) -> Any:
    return {"value": item.params["value"], "bytes": b"x" * item.params.get("size", 0)}


@handler("warn")
def warn_of_what_is_asked_for(item: Item, ctx: Context) -> Any:
    for text in item.params["texts"]:
        ctx.warn(text)
    thread = threading.Thread(target=ctx.warn, args=("from a thread",))
    thread.start()
    thread.join()
    return {"warnings": ["in the result"]}


def log_all(item: Item, ctx: Context) -> None:
    """By all loggers, at all levels."""
    feeds = logging.getLogger("feeds")
    feeds.setLevel(logging.INFO)
    logging.basicConfig(stream=sys.stdout)  # of no effect on what is kept
    ctx.log.debug("by %s", "ctx.log")
    feeds.debug("not emitted")
    for text in item.params["texts"]:
        feeds.info(text)
    try:
        raise ValueError(item.params["texts"][0])
    except ValueError:
        feeds.exception("it failed")


@dataclasses.dataclass
class ReportParams:
    url: str
    days: int = 30


@handler("report", params=ReportParams)
def report(item: Item, ctx: Context) -> Any:
    return [type(item.params).__name__, item.params.url, item.params.days]


class Blocked(Fail):
    def __init__(self, page: str) -> None:
        self.page = page


class Unreadable(Fail):
    def __str__(self) -> str:
        raise SystemExit(3)


def answer(kind: str) -> None:
    """Raises an answer."""
    match kind:
        case "retry":
            raise Retry("5m", "429 Too Many Requests, token hunter2hunter2")
        case "retry-silently":
            raise Retry(1.5)
        case "skip":
            raise Skip("the feed is closed on Sundays, token hunter2hunter2")
        case "fail":
            raise Fail("no such feed, token hunter2hunter2")
        case "fail-and-retry":
            raise Fail("the feed is down", retry=True)
        case "caused":
            try:
                raise KeyError("address")
            except KeyError as problem:
                raise Fail("the item has no address") from problem
        case "no-answer":
            raise Retry("soon")
        case "of-an-own-class" | "unreadable":
            raise Blocked("page 7") if kind == "of-an-own-class" else Unreadable("x")


@handler("answer", every="1h")
def answer_as_asked_for(item: Item, ctx: Context) -> Any:
    answer(item.params["kind"])
    return os.getpid()


@handler("log")
def log_what_is_asked_for(item: Item, ctx: Context) -> Any:
    log_all(item, ctx)
    thread = threading.Thread(target=logging.getLogger("feeds").error, args=("in a thread",))
    thread.start()
    thread.join()
    if "end" in item.params:
        os.kill(os.getpid(), 9)


@handler("log-in-a-fork")
def log_in_a_fork(item: Item, ctx: Context) -> None:
    feeds = logging.getLogger("feeds")
    feeds.warning("before")
    if (pid := os.fork()) == 0:
        feeds.warning("in the fork")
        os._exit(0)
    os.waitpid(pid, 0)


@handler("save")
def save_what_is_asked_for(item: Item, ctx: Context) -> Any:
    ctx.save(item.params["value"])
    return {"before": ctx.checkpoint}


@handler("report-in-a-fork")
def report_in_a_fork(item: Item, ctx: Context) -> list[str]:
    """What a fork gets for each way to report."""
    answer, written = os.pipe()
    if (pid := os.fork()) == 0:
        for report, args in ((ctx.save, (1,)), (ctx.progress, (1, 2)), (ctx.warn, ("x",))):
            try:
                report(*args)
            except BlackboardError as problem:
                os.write(written, f"{problem}\n".encode())
        ctx.log.warning("dropped")
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(written)
    with open(answer) as file:  # noqa: PTH123 - a descriptor
        return file.read().splitlines()


@handler("save-in-threads")
def save_in_threads(item: Item, ctx: Context) -> Any:
    threads = [threading.Thread(target=ctx.save, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return None


@handler("return-odd")
def return_what_json_cannot_hold(item: Item, ctx: Context) -> Any:
    cycle: list[Any] = []
    cycle.append(cycle)
    odd = {"object": object(), "nested": {"here": [object()]}, "cycle": cycle, "lone": "\ud800"}
    return odd[item.params["what"]]


@handler("speak")
def speak(item: Item, ctx: Context) -> None:
    ctx.log.debug("a detail")
    ctx.progress(1, 3)
    ctx.log.info("%s of %d", "one", 3)
    ctx.log.warning("grüße 🐝 \ud800")
    ctx.progress(3, 3)
    try:
        raise LookupError("nothing there")
    except LookupError:
        ctx.log.exception("it went wrong")


@handler("print")
def print_in_every_way(item: Item, ctx: Context) -> None:
    print("from print, without a newline", end="; ")
    print("from stderr", file=sys.stderr)
    os.write(1, b"from a descriptor\n")
    ctypes.CDLL(None).puts(b"from C")
    subprocess.run([sys.executable, "-S", "-c", "print('from a grandchild')"], check=True)
    sys.stdout.buffer.write(b"not \xff UTF-8; \xc3\xbcber\n")


@handler("print-much")
def print_much(item: Item, ctx: Context) -> None:
    for n in range(item.params["lines"]):
        print(f"line {n} ", "ü" * 20)


@handler("raise")
def raise_what_is_asked_for(item: Item, ctx: Context) -> None:
    kinds: dict[str, BaseException] = {
        "value": ValueError("bad feed ü \ud800"),
        "long": ValueError("x" * 100_000),
        "endless": ValueError("x" * 3_000_000),
        "exit": SystemExit(3),
        "good exit": SystemExit(),
        "good exit 0": SystemExit(0),
        "interrupt": KeyboardInterrupt(),
    }
    raise kinds[item.params["what"]]


@handler("wait-until-lost")
def wait_until_lost(item: Item, ctx: Context) -> Any:
    before = bool(ctx.lost)
    short = ctx.lost.wait(0.001)
    ctx.progress(0, 1)
    return [before, short, ctx.lost.wait(60), bool(ctx.lost), ctx.lost.reason]


@handler("fork")
def return_twice(item: Item, ctx: Context) -> Any:
    """A fork that the handler forgets about returns, too."""
    mine = os.getpid()
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
    return os.getpid() == mine
