"""Where tuples come from in this process: files, tables, iterables, and a generator that keeps to a schedule."""

from tidegate.runtime.local.origins.arrivals import Arrival, Reading, arrivals_of
from tidegate.sources.in_memory import Heartbeat, Marked, Paced

__all__ = ["Arrival", "Heartbeat", "Marked", "Paced", "Reading", "arrivals_of"]
