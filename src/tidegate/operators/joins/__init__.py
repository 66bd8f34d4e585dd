"""Joins over Arrow batches: tuples of both sides as columns, loops that try pairs, and state that instances share."""
