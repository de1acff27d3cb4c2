"""The protocol as a model, to be read and to be searched.

Read `store.py` and `rows.py`, then `batches.py`: that is the protocol. Then who sends them and what
they do in doubt: `walks.py`, `runs.py`, `operators.py`. What must hold: `judges.py`. What it takes:
`conditions.py`.

    python -m tests.proof.model               the shortest story for each condition left out
    python -m tests.proof.model late tomb     of these alone

Not modelled: time (a lock may be stale whenever another worker looks), pages, the end of history,
runs that fail, edits of a checkpoint, params of one run, requests without params that are one,
names that are forgotten, types that want nothing from late runs, missed slots, newer versions, and
rows that nobody who keeps to the protocol wrote.
"""

import sys

from tests.proof.model.cases import LEFT_OUT
from tests.proof.model.conditions import without
from tests.proof.model.search import search


def main() -> None:
    for condition, _, bounds in LEFT_OUT:
        if condition in sys.argv[1:] or not sys.argv[1:]:
            sys.stdout.write(f"without {condition}\n{search(bounds, without(condition))}\n\n")


if __name__ == "__main__":
    main()
