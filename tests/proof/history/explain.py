"""A verdict in words: the smallest part of a history that shows what is wrong with it.

One line an operation, in the order of their invocations, with moments counted from the first; the
line marked with > is the one whose return has no explanation.
"""

from tests.proof.history.checker import Finding, Verdict
from tests.proof.history.model import Answer, ItemStatus, Operation, Verb

SAYS = {
    Verb.READ: "reads",
    Verb.CLAIM: "claims",
    Verb.RENEW: "renews",
    Verb.RELEASE: "releases",
    Verb.OVERRIDE: "overrides",
    Verb.UNLOCK: "unlocks",
}
NO = {
    Verb.CLAIM: "refused",
    Verb.RENEW: "lost",
    Verb.RELEASE: "late",
    Verb.OVERRIDE: "refused",
    Verb.UNLOCK: "nothing done",
}


def told(key: str, verdict: Verdict) -> str:
    """What was found about one key, for people."""
    match verdict.finding:
        case Finding.LINEARIZABLE:
            return f"{key}: linearizable"
        case Finding.UNDECIDED:
            return f"{key}: UNDECIDED, given up after {verdict.ways:,} ways"
    moments = sorted(
        {one.invoked for one in verdict.window}
        | {one.returned for one in verdict.window if one.returned is not None}
    )
    places = {moment: place for place, moment in enumerate(moments)}
    unexplained = max(one.returned or 0 for one in verdict.window)
    lines = [
        f"{'>' if one.returned == unexplained else ' '} {_span(one, places)} {_said(one)}"
        for one in verdict.window
    ]
    return "\n".join([f"{key}: VIOLATED; before it was {_standing(verdict.start)}", *lines])


def _span(operation: Operation, places: dict[int, int]) -> str:
    end = "..." if operation.returned is None else str(places[operation.returned])
    return f"{places[operation.invoked]:>3} to {end:>3}"


def _said(operation: Operation) -> str:
    said = f"{operation.client} {SAYS[operation.verb]} {operation.fence}"
    if operation.verb is Verb.READ:
        return f"{said}, {_held(operation.holder)}{_etag(operation.seen)}"
    return f"{said}{_etag(operation.seen)}: {_answer(operation)}{_etag(operation.touch)}"


def _answer(operation: Operation) -> str:
    match operation.answer:
        case Answer.NONE:
            return operation.answer.value
        case Answer.NO:
            return NO[operation.verb]
    return f"done, fence {operation.got}" if operation.got else "done"


def _standing(standing: ItemStatus) -> str:
    return f"fence {standing.fence}, {_held(standing.holder)}{_etag(standing.touch)}"


def _held(holder: str) -> str:
    return f"held by {holder}" if holder else "free"


def _etag(etag: str) -> str:
    return f" [{etag}]" if etag else ""
