"""Predicates of two tuples: as a tree, what a tree means, and how functions and expressions become one."""
