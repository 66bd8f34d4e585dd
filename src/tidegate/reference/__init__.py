"""The slow, obvious interpreter: what a query means, whatever runs it."""

from tidegate.reference.interpreter import Advance, Answer, Event, Rows, events_of, interpret
from tidegate.reference.rows import LateTuple

__all__ = ["Advance", "Answer", "Event", "LateTuple", "Rows", "events_of", "interpret"]
