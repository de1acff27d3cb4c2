"""The worker: walks the board every cycle, claims what is due, runs it and writes it back."""
