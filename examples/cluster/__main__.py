"""A standalone Spark of two workers on this machine, an application under a load that rises and falls, and what moved.

python -m examples.cluster            # a few minutes; make cluster-demo does the set-up, too
python -m examples.cluster --to DIR --phases 25x20,40x300,30x20
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.cluster.load import COST_SECONDS, Arrivals, Phase, rated_calls
from examples.cluster.picture import page_picture
from examples.cluster.standalone import LOOPBACK, Cluster, standalone
from tidegate.state.own_folder import own_folder

WORKERS, CORES, WORKER_MB, EXECUTOR_MB = 2, 1, 1_024, 640
CELLS = 2
FIRST_CALLS = 20
PHASES = (Phase(20, 1, 10, 45), Phase(300, 2, 20, 60), Phase(20, 1, 15, 60))
"""Few calls until one executor is left, many until there are two again, few until there is one."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 0 if every call was counted once, 130 if it was interrupted."""
    asked = _parse(arguments)
    root = asked.to or own_folder("tidegate-cluster-demo")
    root.mkdir(parents=True, exist_ok=True)
    for name in ("in", "out", "cluster"):
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "in").mkdir()
    for old in root.glob("run.ledger*"):
        old.unlink()
    ledger = root / "run.ledger"
    # So that what asks the demo to end gets the same clean-up as Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _story(root, ledger)
    except KeyboardInterrupt:
        print("\ninterrupted; the cluster was stopped", file=sys.stderr)
        return 130


def _story(root: Path, ledger: Path) -> int:
    began = time.monotonic()

    def say(text: str) -> None:
        print(textwrap.fill(f"{time.monotonic() - began:4.0f} s  {text}", 110, subsequent_indent=" " * 8), flush=True)

    say(f"starting a standalone Spark on 127.0.0.1: a master, and {WORKERS} workers of {CORES} core and {WORKER_MB} MB")
    with standalone(root / "cluster", workers=WORKERS, cores=CORES, memory_mb=WORKER_MB) as cluster:
        say(f"{cluster.master} has {cluster.workers()} workers; starting the application")
        sent, counted = _run(root, ledger, cluster, say)
    say("the application and the cluster are stopped")
    right = sent == counted
    outcome = "each once" if right else "NOT the same"
    say(f"{sum(sent.values()):,} calls were sent and {sum(counted.values()):,} counted, {outcome}")
    _tell(ledger, say)
    picture = root / "page.png"
    picture.unlink(missing_ok=True)
    why = page_picture(ledger, picture)
    if why:
        say(f"no picture was made, as {why}. See the page in a browser with: tidegate page {ledger}")
    else:
        say(f"what moved, as a picture: {picture}; the page itself: tidegate page {ledger}")
    return 0 if right else 1


def _run(root: Path, ledger: Path, cluster: Cluster, say: Any) -> tuple[Counter[int], Counter[int]]:
    """Run the application until its load has ended: how many calls of each customer were sent, and how many counted."""
    import tidegate as tg

    _configure(root / "conf")
    out = root / "out"
    control = out / "_checkpoint" / "control"
    rates = ", then ".join(f"{phase.rate:g} a second until {phase.executors} executors run" for phase in PHASES)
    cost = f"rating one takes {1e3 * COST_SECONDS:g} ms, so an executor completes {1 / COST_SECONDS:g} a second at most"
    say(f"calls will arrive, {rates}; {cost}")
    arrivals = Arrivals(root / "in", PHASES, lambda: cluster.cores_in_use() // CORES)
    arrivals.write(FIRST_CALLS)

    def steer(progress: tg.Progress) -> None:
        """Start the load when the application runs, and end the input when all that was sent has been read."""
        arrivals.read = progress.rows_total
        if not arrivals.ident:
            say("the application runs; here come the calls")
            arrivals.start()
        elif arrivals.complete and arrivals.read == arrivals.sent.total():
            tg.end_input(control)

    elastic = tg.Elastic(least=1, most=WORKERS, ledger=ledger, period_seconds=2.0, shadows=("ds2",))
    try:
        result = tg.run(
            rated_calls(root / "in"),
            to=out,
            spark=cluster.master,
            cells=CELLS,
            instances=1,
            elastic=elastic,
            balance=True,
            bounded=False,
            progress=steer,
        )
    finally:
        arrivals.end()
    rows = result.read().to_pylist()
    counted: Counter[int] = Counter()
    for row in rows:
        counted[row["src"]] += row["calls"]
    return arrivals.sent, counted


def _configure(folder: Path) -> None:
    """Settings for the driver that `tg.run` starts, in Spark's own file for them."""
    settings = {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.executor.cores": CORES,
        "spark.executor.memory": f"{EXECUTOR_MB}m",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "spark.decommission.enabled": "true",
        "spark.sql.shuffle.partitions": CELLS,
    }
    folder.mkdir(exist_ok=True)
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    os.environ |= {"SPARK_CONF_DIR": str(folder), "SPARK_LOCAL_IP": LOOPBACK}


def _tell(ledger: Path, say: Any) -> None:
    """What was decided, in words."""
    from tidegate.telemetry.read import decisions

    made = decisions(ledger, changes_only=True, shadows=False).to_pylist()
    say("what was decided:" if made else "nothing was decided")
    for each in made:
        text = "{time_seconds:6.1f} s  {subquery}: {instances_before} → {instances}, {why}".format(**each)
        print(textwrap.fill(text, 110, initial_indent="        ", subsequent_indent=" " * 18))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.cluster", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", type=Path, metavar="DIR", help="for calls, results, logs, ledger and picture")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
