"""Queries that are killed, cut off and starved while they run, and have to give every row once all the same.

    python -m tests.chaos --minutes 10

runs the demo's query on Spark, and a join and an `apply` in process. On Spark, drivers, Java processes, Python workers and
executors are killed at random and at chosen moments, the state folder is littered, and the disk is filled; after every death
the same call is made again. In process, instances change without pause while jobs are ended in every way there is.
Every row is compared with the reference interpreter's. The same seed chooses the same faults; when they strike depends on
the machine too.
"""
