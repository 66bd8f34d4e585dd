"""The experiments of the papers, simulated at their sizes: pictures and tables, ours beside what the papers report."""
