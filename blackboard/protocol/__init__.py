"""What can be done to a board: the batches, and who sends them."""
