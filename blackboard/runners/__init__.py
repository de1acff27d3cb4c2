"""The runners: how handlers are called. Imports nothing, so that a child process starts quickly."""
