"""Faults, and what must come of them: one file for each kind, numbered in the order in which they were listed.

::

    data lost or wrong    01 crashes between commits   02 damaged state     03 folders of others   04 tuples from the future
                          05 parquet of another type   06 what was ignored
    hangs and runaway     07 names                     08 flow control      09 how a job ends      10 extreme input
                          11 too many windows          12 constant load     13 pinned threads
    messages              14 errors in a sentence      15 top, README and examples

`test_chaos` runs some of ``python -m tests.chaos``.
"""
