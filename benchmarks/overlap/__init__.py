"""The 24 queries of "On the Semantic Overlap of Operators in Stream Processing Engines" (table 1) and their inputs."""
