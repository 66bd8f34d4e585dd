"""Generated cases are the same on every machine and at every run, and no slow moment of a machine fails them."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("control", derandomize=True, deadline=None)
settings.load_profile("control")
