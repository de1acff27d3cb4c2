"""The demos: sixteen towns, two workers, a kill; and workers that share partitions. They use the
real command, real worker processes and real calendar feeds; nothing of the scheduler depends on
them.
"""
