"""The control plane: observations in, decisions out.

Nothing here runs a query, reads a clock or does I/O. A *controller* says how many instances a subquery should have, a
*balancer* which shards each of them holds, a *placement* which cores a cell gets. The loop in `loop.py` joins them to
whatever runs through two small protocols, so the same code drives the simulator and a live query.
"""
