"""Memory that a worker keeps is not paid for again with every batch."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy as np
from tidegate.operators.cells import keep_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(4_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

usual = faults()
assert keep_memory()
faults()
print(usual, faults())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc can be asked")
def test_a_large_array_is_made_of_memory_that_is_there() -> None:
    told = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    usual, kept = map(int, told.stdout.split())
    assert kept * 20 < usual
