"""Numbers that call from two places at once."""
