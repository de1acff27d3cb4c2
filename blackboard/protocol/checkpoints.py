"""Saves checkpoints: what a run has done so far is written into its item.

A save states the item's etag, and so proves that the lock is still this worker's: every batch that
takes a lock away (override, unlock, cancel, removal) writes the item as well. A save does not write
the lock, so saves and renewals never wait for each other; and it does not renew the lock.

After a conflict, or without an answer, the item is read. If it runs under the claim's fence and has
the checkpoint, the save landed. If it has another checkpoint, the item was changed meanwhile: the
save is sent again, built from the item as it is now. If it does not run under this fence, the lock
is lost.
"""

from functools import partial

from blackboard.model import replace
from blackboard.protocol.batches import save_ops
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim
from blackboard.protocol.releases import until_answered
from blackboard.rules.transitions import saved
from blackboard.table import Conflict, Unknown


async def save(board: BoardTable, claim: Claim, checkpoint: str) -> Claim | None:
    """Saves a checkpoint (JSON) of a run under way; waits for the store without a limit. The claim
    that is returned has the item as it is now. None: the lock is lost, and nothing was saved after
    that. Raises Refused when the store refuses the checkpoint.
    """
    doubtful = not claim.item.etag
    while True:
        if doubtful:
            item = await until_answered(board, claim.id, partial(board.item, claim.id))
            if item is None or not item.running or item.fence != claim.fence:
                return None
            claim = claim.with_item(item, board.resolve)
            if claim.item.checkpoint == checkpoint:
                return claim
        after = saved(claim.item, checkpoint)
        ops = save_ops(claim.item, after)
        commit = partial(board.table.commit, board.partition(claim.id), ops)
        try:
            etags = await until_answered(board, claim.id, commit)
        except (Conflict, Unknown):
            doubtful = True
        else:
            return replace(claim, item=replace(after, etag=etags[0]))
