"""Queries in one process: threads over shared memory, after STRETCH."""
