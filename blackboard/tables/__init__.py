"""The stores: each keeps the contract of `blackboard.table`, and none interprets a row."""
