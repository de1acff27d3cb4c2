"""`blackboard edit`: change how items are run."""

from collections.abc import Callable, Sequence

import click

from blackboard.cli.answers import Answer, due_words, tell
from blackboard.cli.differences import differences
from blackboard.cli.selection import ids_argument, select, spec_of
from blackboard.cli.session import Chosen, Session, common, run
from blackboard.cli.spec_options import Said, edited, spec_options
from blackboard.cli.values import parse_keys, parse_pairs
from blackboard.errors import BadInput
from blackboard.inputs import check_size
from blackboard.model import Item
from blackboard.protocol import edits
from blackboard.protocol.reading import BoardTable
from blackboard.spec import Spec, encode_spec

EPILOG = """\b
Examples:
  blackboard edit westlafcals --every 4h --set days=60
  blackboard edit "town*" --retries 2 --timeout "" --unset debug
"""


@click.command(epilog=EPILOG)
@ids_argument()
@click.option("--unset", metavar="KEY", multiple=True, help="Take a param away.")
@spec_options
@common()
def command(
    *,
    chosen: Chosen,
    ids: tuple[str, ...],
    exact: bool,
    said: Said,
    pairs: tuple[str, ...],
    unset: tuple[str, ...],
) -> int:
    """Change how items are run, and say what changed. An option with "" takes back what the item
    says, so that its type's default counts. A new schedule counts from now.
    """
    if not (said or pairs or unset):
        raise BadInput("edit", "nothing to change", "give an option, --set or --unset")
    parse_pairs(pairs)
    parse_keys(unset)
    edited(Spec(), said)

    def new_of(spec: Spec) -> Spec:
        return edited(spec, said, pairs=pairs, unset=unset)

    return run(_Edit(Session.start(chosen).with_defaults(), new_of).run(ids, exact=exact))


class _Edit:
    def __init__(self, session: Session, new_of: Callable[[Spec], Spec]) -> None:
        self._session = session
        self._new_of = new_of

    async def run(self, ids: Sequence[str], *, exact: bool) -> int:
        async with self._session.board() as board:
            items = await select(board, ids, exact=exact)
            for item in items:
                self._check(board, item)
            answers = [await self._edit(board, item) for item in items]
            return await tell(board, answers, json=self._session.chosen.json)

    def _check(self, board: BoardTable, item: Item) -> None:
        """All or none: what one item refuses is done to none."""
        spec = self._new_of(spec_of(item))
        check_size(spec, limit=board.table.max_value)
        board.resolve(item.type, encode_spec(spec))

    async def _edit(self, board: BoardTable, item: Item) -> Answer:
        done = await edits.edit(board, item.id, lambda spec, _: self._new_of(spec))
        new = spec_of(done.item)
        said = [one.words for one in differences(spec_of(item), new)]
        if not said:
            return Answer(item=done.item, words="is as it was", changed=False)
        due = due_words(done.item, await board.table.now())
        return Answer(item=done.item, words=f"is changed ({'; '.join(said)}) and {due}")
