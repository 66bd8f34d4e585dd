"""Shards that move while a query runs on Spark: from one cell to four, then a few of them to one cell, without stopping.

The state of the query, an hour of calls per caller every minute, is in files; another cell lists them from the next batch
on. Needs Java; run it with

    python examples/moving_shards.py
"""

import tempfile
from pathlib import Path

from inputs.usage import usage

import tidegate as tg

query = (
    tg.stream(usage(rows=20_000), time="time", name="usage")
    .key_by("appId")
    .window("5 minutes", every="1 minute")
    .aggregate(flows=tg.count(), amount=tg.sum("flowAmount"), name="recent")
)


def main() -> None:
    """Run it, and move shards after the first batches."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        control = out / "_checkpoint" / "control"

        def steer(progress: tg.Progress) -> None:
            if progress.batch == 1:
                tg.set_cells(control, 4)
            elif progress.batch == 3:
                tg.move_shards(control, "recent", dict.fromkeys(range(100), 0), protocol="window recreation")

        result = tg.run(query, to=out, files_per_batch=1, cells=(1, 4), progress=steer)
        print(f"{result.results:,} results in {result.batches} batches, the same as without moving anything")


if __name__ == "__main__":
    main()
