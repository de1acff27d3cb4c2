"""The real worker in a virtual world: whole boards, run for hundreds of hours in seconds.

Nothing of the protocol is written again here. Boards, workers, rules and heartbeats are the real
ones; what is simulated is what they stand on: time, the network, the store's machine, handlers,
and all that goes wrong with these.
"""
