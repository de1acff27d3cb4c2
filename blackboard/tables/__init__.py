"""The stores: each keeps the contract of `blackboard.table`, and none knows what a row means."""
