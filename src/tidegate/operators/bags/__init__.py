"""Aggregates of bags over Arrow batches: the tuples that are held, the bags that expire, and the functions of bags."""
