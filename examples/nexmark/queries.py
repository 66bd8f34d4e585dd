"""The 23 queries by name."""

from __future__ import annotations

from collections.abc import Mapping

from examples.nexmark.auctions import q3, q4, q6, q9, q20
from examples.nexmark.market import Query
from examples.nexmark.stateless import q0, q1, q2, q10, q13, q14, q21, q22
from examples.nexmark.statistics import q15, q16, q17, q18, q19
from examples.nexmark.windows import q5, q7, q8, q11, q12

QUERIES: Mapping[str, Query] = {
    query.__name__: query
    for query in (
        q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11, q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22,
    )
}  # fmt: skip
