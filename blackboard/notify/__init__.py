"""Notices: what is news of an item, what the board keeps of it, and how it is sent.

A worker sends a notice when an item has failed and its retries are used up, when it is overdue, and
when it has recovered; and it pings a dead-man address after each walk. It does so beside its work:
neither a slow webhook nor a broken command delays a run.

Each notice is a row of the board (`notice:<id>:<kind>`, in a partition of its own), so that one
worker of many sends it, once, and a restart sends nothing again. A healthy item has no such row and
costs no request.

Promised: `failed` and `overdue` are sent at least once. The row says whether the notice was
accepted; if it was not, in time, a worker that looks after the rows sends it. It is sent twice if a
worker dies between sending it and recording that, or if the receiver takes longer than the timeout.
`recovered` is lost with a worker that dies while it sends it. A ping is not repeated; the next walk
pings again.

Not promised: that a notice is sent when no worker is alive. The dead-man address is for that.
"""
