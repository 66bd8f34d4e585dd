"""The slow, obvious interpreter: what a query means, whatever runs it."""

from tidegate.reference.interpreter import Advance, Answer, Event, Rows, interpret
from tidegate.reference.schedule import events_of

__all__ = ["Advance", "Answer", "Event", "Rows", "events_of", "interpret"]
