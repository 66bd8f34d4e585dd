"""Placement: which cores, on which nodes, each cell gets, so that little state moves and busy data stays at home."""
