"""A Spark cluster on one machine, with an application that follows its load: `python -m examples.cluster`."""
