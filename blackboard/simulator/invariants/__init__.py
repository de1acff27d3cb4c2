"""Invariants of a board, checked at every write and every cycle.

An invariant is called with each `AppliedChange` and raises `Violation`. It keeps what no row has:
the fences that were used, the runs that completed, the requests of people.

    rows         the rows of an item agree; locks, fences, history, late results, versions, etags
    transitions  what follows from a run: slots, attempts, params, as docs/rows.md has it
    requests     what people ask for stays, happens once, and reaches the life that it read
    runs         handlers have a trusted lock and their params, and stop in time; no more of a type
                 go on than the board allows; what they save stays until a good run ends
    liveness     stale locks go first; once faults stop, what is due starts; no needless requests
"""


class Violation(AssertionError):
    """An invariant does not hold. `kind` is the name of the invariant; `item` is the id, if any."""

    def __init__(self, kind: str, problem: str, *, item: str = "") -> None:
        super().__init__(f"{kind}: {problem}" + (f" ({item})" if item else ""))
        self.kind = kind
        self.problem = problem
        self.item = item
