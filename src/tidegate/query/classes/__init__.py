"""Plain Python classes as keyed operators: their source is analysed, and their dicts become the state of a key."""
