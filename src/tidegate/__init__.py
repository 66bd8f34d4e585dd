"""Elastic, deterministic stream processing for Python, on Spark."""
