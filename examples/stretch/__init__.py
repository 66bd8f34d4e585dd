"""The six operators of STRETCH's appendices C and D."""
