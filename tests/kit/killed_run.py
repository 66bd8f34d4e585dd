"""A run on Spark that dies between the directory of a batch, which completes its state, and the commit of the batch.

``python -m tests.kit.killed_run QUERY FILES OUT BATCHES``: once BATCHES more batches are committed, all processes of the
run are killed as soon as it has written the directory of a batch that is not committed. Without BATCHES it runs to its end.
With ``java`` in the place of BATCHES the Java process alone is killed after the second batch, and the query is run again by
the same Python process. With ``folders`` all are killed when a batch, the first that this run has not found listed, is
listed in the folder of the first of several results and in no other.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa

import tidegate as tg
from tidegate.results import Part
from tidegate.runtime.spark.part_log import PartLog


def counted(files: str) -> tg.Stream:
    """Overlapping windows, of which many are open in every batch."""
    flows = tg.stream(files, time="time").key_by("appId")
    return flows.window("4 minutes", every="1 minute").aggregate(
        flows=tg.count(), amount=tg.sum("flowAmount"), versions=tg.distinct("appVersion")
    )


def joined(files: str) -> tg.Stream:
    """A join without an equality, and windows over its results."""
    flows = tg.stream(files, time="time").select("time", "appId", "flowAmount")
    pairs = flows.join(flows, within="20 seconds", where=lambda l, r: abs(l.flowAmount - r.flowAmount) <= 4)
    return pairs.key_by("appId").window("2 minutes").aggregate(pairs=tg.count())


def applied(files: str) -> tg.Stream:
    """A function of one tuple at a time with a state per key and window, which wait until they are settled."""

    def longer(window: Any, flow: Any) -> Any:
        return tg.updated({"text": f"{window.state['text']} {flow['flowAmount']}"})

    flows = tg.stream(files, time="time").select("time", "appVersion", "flowAmount").key_by("appVersion")
    return flows.window("3 minutes", every="1 minute").apply(
        update=longer,
        output=lambda window: {"key": window.key, "text": window.state["text"]},
        state={"text": pa.string()},
        initial={"text": ""},
        returns={"key": pa.int32(), "text": pa.string()},
    )


def stored(files: str) -> tg.Stream:
    """Stores of keys that never end, of which entries are put and removed, and which retire now and then."""

    def keep(window: Any, flow: Any) -> Any:
        amounts = window.store("amounts")
        if flow["appId"] % 3:
            amounts.put(flow["appId"], amounts.get(flow["appId"], 0.0) + flow["flowAmount"])
        else:
            amounts.remove(flow["appId"] + 1)
        row = {"key": window.key, "text": str(amounts.items())}
        return tg.updated(rows=row, retire=len(amounts) > 40)

    flows = tg.stream(files, time="time").select("time", "appVersion", "appId", "flowAmount").key_by("appVersion")
    return flows.unbounded().apply(
        update=keep,
        stores={"amounts": tg.store(key=pa.int32(), value=pa.float64())},
        returns={"key": pa.int32(), "text": pa.string()},
    )


def parted(files: str) -> dict[str, tg.Stream]:
    """Several results: a step as it is, what another makes of it, and tuples of the source that are routed."""
    flows = tg.stream(files, time="time").select("time", "appId", "flowAmount")
    minutes = flows.key_by("appId").window("1 minute").aggregate(n=tg.count(), amount=tg.sum("flowAmount"))
    routes = flows.route(large=nw.col("flowAmount") > 60, rest=True)
    return {"minutes": minutes, "busy": minutes.filter(nw.col("n") > 2), **routes}


def die_between_folders(log: PartLog, batch: int, parts: Iterable[Part]) -> None:
    """List the parts of a batch; if it is the first that 'minutes' did not have before, die with all that runs."""
    known = (log.folder / "_spark_metadata" / str(batch)).exists()
    PART_LOG_ADD(log, batch, parts)
    if log.folder.name == "minutes" and not known:
        os.killpg(0, signal.SIGKILL)


PART_LOG_ADD = PartLog.add
QUERIES: dict[str, Callable[[str], tg.Stream]] = {
    "counted": counted,
    "joined": joined,
    "applied": applied,
    "stored": stored,
}


def committed(checkpoint: Path) -> int:
    """How many batches are committed."""
    names = [entry.name for entry in (checkpoint / "spark" / "commits").glob("*")]
    return max((int(name) for name in names if name.isdigit()), default=-1) + 1


def directories(checkpoint: Path) -> dict[Path, int]:
    """The directories that cells have written, in any run, each with its batch."""
    with suppress(FileNotFoundError):  # a run that begins anew removes what there was
        found = (checkpoint / "state").glob("*/step-*/cell-*/[0-9]*")
        return {path: int(path.name.partition("-")[0]) for path in found}
    return {}


def die_between_commits(checkpoint: Path, batches: int) -> None:
    """Kill the group of this process when it has written a directory of the batch that is committed next."""
    least, before = committed(checkpoint) + batches, set(directories(checkpoint))
    while True:
        done = committed(checkpoint)
        written = {batch for path, batch in directories(checkpoint).items() if path not in before}
        if done >= least and done in written and committed(checkpoint) == done:
            os.killpg(0, signal.SIGKILL)
        time.sleep(0.0005)


def outlive_java(query: tg.Stream, out: str) -> None:
    """Run a query whose Java process is killed, and once more."""
    from pyspark import SparkContext

    def kill(progress: tg.Progress) -> None:
        gateway: Any = SparkContext._gateway
        if progress.batch == 1:
            gateway.proc.send_signal(signal.SIGKILL)

    try:
        tg.run(query, to=out, spark="local[2]", files_per_batch=1, progress=kill)
    except tg.EnvironmentFault as fault:
        print(fault, flush=True)
    tg.run(query, to=out, spark="local[2]", files_per_batch=1, progress=False)


if __name__ == "__main__":
    name, files, out, *batches = sys.argv[1:]
    if batches == ["java"]:
        outlive_java(QUERIES[name](files), out)
        sys.exit()
    if batches == ["folders"]:
        PartLog.add = die_between_folders  # type: ignore[method-assign]
        batches = []
    if batches:
        place = Path(out) / "_checkpoint"
        threading.Thread(target=die_between_commits, args=(place, int(batches[0])), daemon=True).start()
    query: Any = parted(files) if name == "parted" else QUERIES[name](files)
    tg.run(query, to=out, spark="local[2]", files_per_batch=1, progress=False)
