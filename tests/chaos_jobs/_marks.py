"""What a handler leaves in its folder, so that a test can see it from outside."""

import os
from pathlib import Path

from blackboard import Context, Item


def begin(item: Item, ctx: Context) -> None:
    """Say that this run has begun, and in which process."""
    folder = Path(item.params["folder"])
    fresh = folder / f".began-{item.id}-{ctx.fence}-{os.getpid()}"
    fresh.write_text(str(os.getpid()))
    fresh.rename(folder / f"began-{item.id}-{ctx.fence}")


def note(item: Item, ctx: Context, what: str) -> None:
    """One line in a file that all runs share: written whole, whoever is killed meanwhile."""
    line = f"{what} {item.id} {ctx.fence} {ctx.worker}\n"
    log = os.open(Path(item.params["folder"], "notes"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(log, line.encode())
    finally:
        os.close(log)


def has(item: Item, name: str) -> bool:
    return Path(item.params["folder"], name).exists()


def said(ctx: Context) -> dict[str, object]:
    """A result that tells whose it is."""
    return {"worker": ctx.worker, "fence": ctx.fence, "attempt": ctx.attempt}
