"""What people do to items, by name, and an item to which it makes a difference."""

from collections.abc import Awaitable, Callable
from typing import Any

from blackboard.protocol.additions import New, add
from blackboard.protocol.edits import Changed, cancel, edit, pause, remove, resume, run_now, unlock
from blackboard.rules.transitions import Requested
from blackboard.spec import Spec
from tests.support.boards import Scene


def says(**said: Any) -> Callable[..., Spec]:
    return lambda *_: Spec(**said)


async def add_here(scene: Scene, item_id: str = "davis", **said: Any) -> Changed:
    spec = Spec(**said or {"every": "1h"})
    return await add(scene.board, New(id=item_id, type="feed", spec=spec))


VERBS: dict[str, Callable[[Scene], Awaitable[Changed | Requested]]] = {
    "edit": lambda scene: edit(scene.board, "davis", says(every="3h")),
    "pause": lambda scene: pause(scene.board, "davis", scene.mark()),
    "resume": lambda scene: resume(scene.board, "davis", scene.mark()),
    "run_now": lambda scene: run_now(scene.board, "davis"),
    "unlock": lambda scene: unlock(scene.board, "davis", scene.mark(), fence=1),
    "cancel": lambda scene: cancel(scene.board, "davis", scene.mark(), fence=1),
    "remove": lambda scene: remove(scene.board, "davis"),
}


async def ready_for(verb: str, scene: Scene) -> None:
    """An item to which `verb` makes a difference."""
    await scene.add("davis")
    if verb == "resume":
        await pause(scene.other, "davis", scene.mark())
    if verb in {"unlock", "cancel"}:
        await scene.claimed("davis", board=scene.other)
