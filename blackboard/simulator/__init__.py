"""The real worker in a virtual world: whole boards, run for hundreds of hours in seconds.

The protocol is not written again here. Boards, workers, rules and heartbeats are the real ones;
simulated are time, the network, the store, handlers, and the faults of all of these.
"""
