"""Break-ins: a login that succeeds after many that failed, from the same host.

The lines of a log are parsed, and what they say of logins goes to a plain Python class. Its dicts are indexed by the host
alone, which is found in its source: that is the key, and what the dicts hold for a host is kept by tidegate, so it is spread
over instances and cells and outlives restarts.
"""

from collections import defaultdict

import pyarrow as pa
import pyarrow.compute as pc

import tidegate as tg

LOGIN = (
    r"^sshd\[\d+\]: (?:message repeated (?P<times>\d+) times: \[ )?(?P<what>Accepted|Failed) \w+ "
    r"for (?:invalid user )?(?P<user>\S*) from (?P<host>\S+) port "
)
ATTEMPT = {
    "ts": pa.timestamp("us", tz="UTC"),
    "line": pa.int64(),
    "host": pa.string(),
    "user": pa.string(),
    "accepted": pa.bool_(),
    "times": pa.int64(),
}


def parsed(batch: pa.RecordBatch) -> pa.Table:
    """The lines that tell of a login, with its host, its user, and how many times it was tried alike."""
    told = pc.extract_regex(batch.column("message"), LOGIN)
    there = told.is_valid()
    times, what, user, host = told.filter(there).flatten()
    repeated = pc.if_else(pc.equal(times, ""), "1", times).cast(pa.int64())
    columns = [*(batch.column(name).filter(there) for name in ("ts", "line")), host, user]
    return pa.table([*columns, pc.equal(what, "Accepted"), repeated], names=list(ATTEMPT))


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
            self.failures[host] += login["times"]
            tried = self.users.setdefault(host, {})
            tried[user] = tried.get(user, 0) + login["times"]
            return
        failures, tried = self.failures.pop(host, 0), self.users.pop(host, {})
        if failures > self.most:
            yield {
                "host": host,
                "user": user,
                "failures": failures,
                "tried": [f"{name} {n}" for name, n in tried.items()],
            }


def break_ins(attempts: tg.Stream) -> tg.Stream:
    """The break-ins among attempts."""
    found = {"host": pa.string(), "user": pa.string(), "failures": pa.int64(), "tried": pa.list_(pa.string())}
    return attempts.apply(tg.operator(BreakIns, returns=found))
