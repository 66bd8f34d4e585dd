"""Elasticity at work: control loops that run beside a query."""
