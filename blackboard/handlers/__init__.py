"""Handlers: how they are marked, found and described, and what they are given."""
