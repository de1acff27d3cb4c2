"""The protocol of a board: its keys, rows and batches, and the code that reads and writes them."""
