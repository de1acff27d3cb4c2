"""The rules: state and `now` in, decision out. No clock, no randomness, no I/O, no logging."""
