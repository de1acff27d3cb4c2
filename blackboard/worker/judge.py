"""Judges the tokens that a worker reads: which it may claim, and what is done about the others.

Tokens of a type without a handler here are left to other workers. One whose settings cannot be
computed is left alone, which is reported once for each item. So is one that does not fit its item:
it is not tried again before the next walk over the board.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from blackboard.errors import BadInput
from blackboard.handlers.handler import Handler
from blackboard.model import Lock, Token
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.planning import check_runnable
from blackboard.rules.due import Move, decide_token
from blackboard.worker.backlog import Candidate, Judged
from blackboard.worker.left_alone import LeftAlone
from blackboard.worker.peers import FIRST, Peers

Version = tuple[str, str]
"""The item and the etag of a token or a lock. Rows that were written in one batch may have the same
etag."""


def version(row: Token | Lock) -> Version:
    return row.id, row.etag


@dataclass(slots=True, kw_only=True)
class Judge:
    """Judges tokens for one worker."""

    board: BoardTable
    handlers: Mapping[str, Handler]
    """The handlers of the types that this worker takes."""
    peers: Peers
    left_alone: LeftAlone
    _takes_turns: bool = True
    _own_tokens: set[str] = field(default_factory=set)
    """Items whose tokens this worker has written since the walk over the board."""
    _set_aside: set[Version] = field(default_factory=set)
    """Tokens that are not tried again before the next walk over the board."""

    def begin(self, *, takes_turns: bool) -> None:
        """Begins a walk over the board: all tokens are looked at anew. `takes_turns`: whether the
        worker leaves others their turn.
        """
        self._takes_turns = takes_turns
        self._own_tokens.clear()
        self._set_aside.clear()

    def wrote(self, item_id: str) -> None:
        """Notes a token that this worker's own release has written. This worker is the first to
        take it: no other has read it.
        """
        self._own_tokens.add(item_id)

    def set_aside(self, token: Token, *, refused: BadInput | None = None) -> None:
        """Excludes a token until the next walk over the board, and reports it if the store has
        `refused` its claim.
        """
        self._set_aside.add(version(token))
        if refused is not None:
            self.left_alone.report(token, refused)

    def ready(self, token: Token, now: datetime) -> Judged | None:
        """Judges a token that is ready. None: this worker leaves it alone."""
        if token.type not in self.handlers or version(token) in self._set_aside:
            return None
        try:
            candidate = self._candidate(token)
            move = self.decide(candidate, now)
        except (BadInput, ValueError) as error:
            self.left_alone.report(token, error)
            return None
        return None if move is Move.LEAVE else Judged(candidate, move)

    def later(self, token: Token) -> Candidate | None:
        """The candidate of a token that is not ready yet. None: this worker cannot claim it."""
        if token.type not in self.handlers:
            return None
        try:
            return self._candidate(token)
        except (BadInput, ValueError):
            return None  # reported once it is ready

    def decide(self, candidate: Candidate, now: datetime) -> Move:
        """What is done about a candidate. Raises BadInput where its settings cannot be computed."""
        token, settings = candidate.token, candidate.settings
        return decide_token(token, now=now, types=self.handlers, settings=settings)

    def _candidate(self, token: Token) -> Candidate:
        """The candidate of a token. Raises BadInput or ValueError where its settings cannot be
        computed, or it is not `check_runnable`.
        """
        settings = self.board.resolve(token.type, token.spec)
        limit = check_runnable(self.board, token, settings)
        is_first = not self._takes_turns or token.id in self._own_tokens
        turn = FIRST if is_first else self.peers.turn(token, urgent=settings.priority > 0)
        return Candidate(token, settings, limit, turn)
