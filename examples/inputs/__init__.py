"""Generated inputs with the schemas of the papers, for the examples, tests and benchmarks."""
