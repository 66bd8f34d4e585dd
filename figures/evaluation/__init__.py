"""The evaluation of the five papers, figure by figure, beside ours: what `make report` runs and writes."""
