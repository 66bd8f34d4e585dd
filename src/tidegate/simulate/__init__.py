"""A deterministic simulator of subquery networks that drives the control loop at sizes no machine here has.

Loads (`loads.py`) feed a network (`network.py`); `fluid.py` moves tuples as a fluid, tick by tick; `run.py` shows each
period to one control loop per subquery and carries its decisions out; `merits.py` says how well that went. `exact.py`
plays queues event by event, to check the fluid and the closed forms against.
"""
