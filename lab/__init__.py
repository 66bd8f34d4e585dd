"""Experiments: networks of subqueries, exact queues, figures of merit and the tournament of controllers."""
