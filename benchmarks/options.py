"""What the command line decides, handed to every benchmark."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.overlap.queries import QUERIES
from benchmarks.workloads import WINDOWED
from examples.nexmark.answers import ANSWERS

PROJECT = Path(__file__).resolve().parent.parent
RESULTS = PROJECT / "benchmarks" / "results"
CACHE = Path(tempfile.gettempdir()) / "tidegate-benchmarks"
MOVED = ("windows", "join", "apply")  # the queries of move-state
OF_GEDIK = ("bargain_index", "twitter", "pagerank", "network_monitoring")
OVER_CALLS = ("calls_map", "calls_aggregate", "calls_join", "calls_product")
APPLICATIONS = (*OF_GEDIK, "exchange", *OVER_CALLS)  # what applications runs
DRIVER_MEMORY_VARIABLE = "TIDEGATE_BENCHMARK_DRIVER_MEMORY"  # how --driver-memory-gb reaches an engine's process


def python_path() -> str:
    """Where Python processes that are started find the benchmarks, Spark's workers among them."""
    return os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH"))))


@dataclass(frozen=True, slots=True)
class Options:
    """None stands for the benchmark's own default."""

    tuples: int | None = None
    batch_rows: tuple[int, ...] | None = None
    runs: int = 3
    engines: tuple[str, ...] | None = None
    data: Path | None = None
    seed: int = 1
    tuples_per_second: int = 1_000
    driver_memory_gb: int | None = None
    seconds: float | None = None
    of: tuple[str, ...] | None = None
    span_seconds: float | None = None
    tick_ms: float = 1.0
    rate: int | None = None
    cells: str | None = None
    out: Path = RESULTS

    def __post_init__(self) -> None:
        for name in ("runs", "tuples_per_second", "driver_memory_gb", "seconds", "rate"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
        known = (*WINDOWED, *QUERIES, *MOVED, *ANSWERS, *APPLICATIONS)
        for name in self.of or ():
            if name not in known:
                valid = ", ".join(known)
                raise ValueError(f"--of names workloads, or queries of a benchmark, not {name!r}; valid are: {valid}")
        if self.span_seconds is not None and self.span_seconds < 1:
            raise ValueError(f"--span-seconds must be at least 1, not {self.span_seconds:g}")
        if not 0.1 <= self.tick_ms <= 1_000:
            raise ValueError(f"--tick-ms must be from 0.1 to 1000, not {self.tick_ms:g}")
