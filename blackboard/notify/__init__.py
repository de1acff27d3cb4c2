"""Telling people early: which news there are, what the board keeps of them, how they are sent.

A worker tells when an item has failed for good (its retries are used up), when it is overdue, and
when it is well again; and it pings a dead-man address after each walk. It does so beside its work,
and neither a slow webhook nor a broken command delays a run.

What is told is a row of the board (`notice:<id>`, in a partition of its own), so that of many
workers one tells, once, and a restart tells nothing again. A healthy item has no such row and costs
no request.

Promised: `failed` and `overdue` are told at least once. The row says whether somebody took the
notice; where nobody did, in time, whoever sees the item fail or wait next tells it. Twice, then, if
a worker dies between the sending and the row that says so. `recovered` is told at most once: a
worker that dies while it tells it takes it along. A ping is not repeated; the next walk's is.

Not promised: that anybody tells anything when no worker is alive. That is what the dead-man address
is for.
"""
