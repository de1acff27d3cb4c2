"""The protocol: keys, rows and batches, and what reads and writes a board by them."""
