"""Handlers that ship with the scheduler. They import `blackboard`, never the reverse."""
