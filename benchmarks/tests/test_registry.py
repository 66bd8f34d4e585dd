from __future__ import annotations

import pytest

from benchmarks.harness import run_windowed
from benchmarks.registry import BENCHMARKS, Benchmark, run_of


@pytest.mark.parametrize("benchmark", BENCHMARKS.values(), ids=BENCHMARKS)
def test_every_name_leads_to_a_function(benchmark: Benchmark) -> None:
    run = benchmark.run
    assert run.func is run_windowed or callable(run_of(*run.args))
