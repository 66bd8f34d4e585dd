"""A run of the engine of one operator that a test kills: `python -m tests.kit.micro_run FOLDER PROCESSES PAUSE`."""

from __future__ import annotations

import sys

from tests.kit import micro_graphs as graphs
from tidegate import micro

SPLITS, ROWS, SIZE_US, EVERY_US = 3, 400, 20, 5


def graph(pause: float) -> micro.AggregateStage:
    """Sums over three splits of 400 rows that are read in batches of ten, with a pause after each."""
    splits = [(seed, ROWS, pause) for seed in range(SPLITS)]
    return graphs.sums(micro.source("rows", splits, graphs.numbered), SIZE_US, EVERY_US)


def expected() -> list[micro.Row]:
    rows = [row for seed in range(SPLITS) for row in graphs.generated(ROWS, 20, seed)]
    return graphs.expected_sums(rows, SIZE_US, EVERY_US)


if __name__ == "__main__":
    folder, processes, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    print("begun", flush=True)
    micro.run(graph(pause), to=folder, processes=processes, snapshot_seconds=0.02)
    print("finished", flush=True)
