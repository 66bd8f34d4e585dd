"""More generated cases than the test suite runs: ``make fuzz N=20000``. Stops at the first difference, and shows it.

Each case runs as Spark would run it, and in this process with instances that change; ``--on`` leaves one of them out.
About every tenth brings an O+, running state, sessions, count windows, a join over the last tuples, an as-of join or a dedup
along, about every fourth ways that part and meet again, about every sixth, as on Spark, keys that are split.
``make fuzz N=20000 ARGS=--joins`` runs joins instead. ``--seconds 30`` begins no more rounds of cases after
that time, whatever their number.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.kit.as_of_cases import as_of_cases
from tests.kit.cases import Case, any_features, cases, split_features
from tests.kit.check import check_case
from tests.kit.check_flow import check_flow, check_flow_on_driver
from tests.kit.check_join import check_join, check_join_on_cells
from tests.kit.check_keyed_apply import check_keyed_apply
from tests.kit.check_keyed_apply_cells import any_driver, check_on_driver
from tests.kit.check_local import any_reconfigurer, any_settings, check_locally
from tests.kit.count_join_cases import count_join_cases
from tests.kit.count_window_cases import count_window_cases
from tests.kit.coverage import Coverage
from tests.kit.dedup_cases import dedup_cases
from tests.kit.join_cases import join_cases, spark_join_cases
from tests.kit.keyed_apply_cases import keyed_apply_cases
from tests.kit.running_cases import running_cases
from tests.kit.session_cases import session_cases
from tests.kit.store_cases import store_cases

REPORT_EVERY = 500
KEYED_APPLY_EVERY = 10
FLOW_EVERY = 4
SPLIT_EVERY = 6
_APPLIED = (
    keyed_apply_cases(),
    running_cases(),
    dedup_cases(),
    store_cases(),
    session_cases(),
    count_window_cases(),
    as_of_cases(),
    count_join_cases(),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("cases", type=int, help="how many cases to run; with --seconds, in each round")
    parser.add_argument("--seconds", type=float, default=0.0, help="go on with more rounds for so long")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="default: any")
    parser.add_argument("--joins", action="store_true", help="joins, rather than windows")
    parser.add_argument("--on", choices=["spark", "local"], help="only as Spark would run it, or only in this process")
    given_ = parser.parse_args()
    fuzz = fuzz_joins if given_.joins else fuzz_windows
    # A run of so many seconds says at once what failed; one with the seed it prints makes the case smaller, in minutes.
    phases = [Phase.generate] if given_.seconds else [Phase.generate, Phase.shrink, Phase.explain]
    until, number = time.monotonic() + given_.seconds, given_.seed
    while True:
        print(f"python -m tests.property.fuzz {given_.cases} --seed {number}", flush=True)
        said = fuzz(given_.cases, number, phases, cells=given_.on != "local", local=given_.on != "spark")
        number += 1
        if time.monotonic() >= until:
            print(said)
            return 0


def fuzz_windows(wanted: int, first: int, phases: Sequence[Phase], cells: bool = True, local: bool = True) -> str:
    """Windowed aggregates, as on Spark and in this process."""
    coverage, started = Coverage(), time.monotonic()

    with tempfile.TemporaryDirectory() as folder:

        @seed(first)
        @settings(
            max_examples=wanted, phases=phases, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
        )
        @given(st.data())
        def check(data: st.DataObject) -> None:
            case: Case = data.draw(any_features().flatmap(cases))
            if cells:
                check_case(case, Path(folder))
            if cells and data.draw(st.integers(1, SPLIT_EVERY)) == SPLIT_EVERY:
                check_case(data.draw(split_features().flatmap(cases)), Path(folder), hot_keys=True)
            if local:
                check_locally(case, data.draw(any_settings()), data.draw(any_reconfigurer()))
            if local and data.draw(st.integers(1, FLOW_EVERY)) == FLOW_EVERY:
                check_flow(data)
            if cells and data.draw(st.integers(1, FLOW_EVERY)) == FLOW_EVERY:
                check_flow_on_driver(data)
            if data.draw(st.integers(1, KEYED_APPLY_EVERY)) == KEYED_APPLY_EVERY:
                applied = data.draw(st.one_of(*_APPLIED))
                if local:
                    check_keyed_apply(applied, data.draw(any_settings()), data.draw(any_reconfigurer()))
                if cells:
                    check_on_driver(applied, *data.draw(any_driver(applied, Path(folder))))
            coverage.add(case.features)
            if coverage.cases % REPORT_EVERY == 0:
                rate = coverage.cases / (time.monotonic() - started)
                print(f"{coverage.cases} of {wanted} cases, {rate:.0f} a second, no difference", file=sys.stderr)

        check()
    return f"{coverage.table()}\nno difference from the reference in {coverage.cases} cases"


def fuzz_joins(wanted: int, first: int, phases: Sequence[Phase], cells: bool = True, local: bool = True) -> str:
    """Joins in this process, and other ones as on Spark."""
    seen: Counter[str] = Counter()
    started = time.monotonic()

    with tempfile.TemporaryDirectory() as folder:

        @seed(first)
        @settings(
            max_examples=wanted, phases=phases, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
        )
        @given(st.data())
        def check(data: st.DataObject) -> None:
            case = data.draw(join_cases())
            if local:
                check_join(case, data.draw(any_settings()), data.draw(any_reconfigurer()))
            if cells:
                on_cells = data.draw(spark_join_cases())
                hot_keys = "inner" in on_cells.features and data.draw(st.booleans())
                check_join_on_cells(on_cells, Path(folder), hot_keys)
            seen.update(["cases", *case.features])
            if seen["cases"] % REPORT_EVERY == 0:
                rate = seen["cases"] / (time.monotonic() - started)
                print(f"{seen['cases']} of {wanted} cases, {rate:.0f} a second, no difference", file=sys.stderr)

        check()
    features = ", ".join(f"{feature}: {count}" for feature, count in sorted(seen.items()))
    return f"{features}\nno difference from the reference in {seen['cases']} cases"


if __name__ == "__main__":
    sys.exit(main())
