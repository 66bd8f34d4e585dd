"""A deterministic simulator of a subquery that drives the control loop at sizes no machine here has.

A load (`loads.py`) feeds a subquery (`model.py`); `fluid.py` moves tuples as a fluid, tick by tick; `run.py` shows each
period to the control loop and carries its decisions out; `plot.py` draws how that went.
"""
