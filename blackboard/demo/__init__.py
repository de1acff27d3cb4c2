"""The demo: sixteen towns, two workers, a kill. It uses the real command, real worker processes and
real calendar feeds; nothing of the scheduler depends on it.
"""
