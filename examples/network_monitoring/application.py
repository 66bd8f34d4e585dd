"""Break-ins, and the failures of each host, in the log of a server."""

from pathlib import Path

import narwhals as nw
import pyarrow as pa
import pyarrow.compute as pc

import tidegate as tg
from examples.application import Application, Report, Tables
from examples.inputs.logins import log_lines, real_log
from examples.network_monitoring.break_ins import ATTEMPT, break_ins, parsed


def results(inputs: Tables) -> dict[str, tg.Stream]:
    """Break-ins, and how often each host failed in each hour."""
    attempts = tg.stream(inputs["lines"], time="ts", name="lines").map_batches(parsed, schema=ATTEMPT)
    failures = attempts.filter(~nw.col("accepted")).key_by("host").window("1 hour").aggregate(failures=tg.sum("times"))
    return {"break_ins": break_ins(attempts), "failures": failures}


def report(found: Tables) -> Report:
    """The hosts that failed most, and how often they broke in."""
    failed = found["failures"].group_by("host").aggregate([("failures", "sum")])
    most = failed.sort_by([("failures_sum", "descending"), ("host", "ascending")]).slice(0, 5)
    hosts = found["break_ins"]["host"].to_pylist()
    rows = pa.table(
        {
            "host": most["host"],
            "failures": most["failures_sum"],
            "break_ins": [hosts.count(host) for host in most["host"].to_pylist()],
        }
    )
    total = pc.sum(failed["failures_sum"]).as_py() or 0
    return Report(
        rows, f"{total:,} logins of {failed.num_rows:,} hosts failed, and {len(hosts):,} that succeeded were break-ins."
    )


def read(folder: Path, tuples: int) -> dict[str, pa.Table]:
    """The lines of real logs."""
    return {"lines": real_log(folder, tuples)}


network_monitoring = Application(
    name="network_monitoring",
    question="Which logins succeeded after many had failed from the same host?",
    generate=lambda tuples, seed: {"lines": log_lines(tuples, seed)},
    read=read,
    results=results,
    report=report,
)
