"""Structured Streaming: a stateful step is one exchange and one group per cell; all else is native Spark."""
