"""Break-ins: a login that succeeds after many that failed, from the same host (Gedik et al., Network monitoring).

A plain Python class. Its dicts are indexed by the host alone, which is found in its source: that is the key, and what the
dicts hold for a host is kept by tidegate, so it is spread over instances and cells and outlives restarts. Try

    tidegate run examples/break_ins.py --on local
"""

from collections import defaultdict

import pyarrow as pa
from inputs.logins import logins

import tidegate as tg


class BreakIns:
    """Failed logins of each host since the last one that succeeded, by user."""

    def __init__(self):
        self.most = 20
        self.failures: defaultdict[str, int] = defaultdict(int)
        self.users: dict[str, dict[str, int]] = {}

    def process(self, login):
        """A row for each login that succeeds after more than 20 failures."""
        host, user = login["host"], login["user"]
        if not login["accepted"]:
            self.failures[host] += 1
            tried = self.users.setdefault(host, {})
            tried[user] = tried.get(user, 0) + 1
            return
        failures, tried = self.failures.pop(host, 0), self.users.pop(host, {})
        if failures > self.most:
            yield {
                "host": host,
                "user": user,
                "failures": failures,
                "tried": [f"{name} {n}" for name, n in tried.items()],
            }


query = tg.stream(logins(rows=20_000), time="ts", name="logins").apply(
    tg.operator(
        BreakIns,
        returns={"host": pa.string(), "user": pa.string(), "failures": pa.int64(), "tried": pa.list_(pa.string())},
    )
)
