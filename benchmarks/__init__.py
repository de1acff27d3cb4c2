"""Measurements, each against something that runs beside it on the same machine."""
