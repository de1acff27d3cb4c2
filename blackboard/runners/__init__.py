"""Ways of calling handlers. Imports nothing: a child process starts with this package."""
