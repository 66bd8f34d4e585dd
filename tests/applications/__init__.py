"""The applications of the papers, each against a computation of its own."""
