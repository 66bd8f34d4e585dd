"""More generated cases than the test suite runs: ``make fuzz N=20000``. Stops at the first difference, and shows it.

Each case runs as Spark would run it, and in this process with instances that change. About every tenth brings an O+ along.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.cases import Case, any_features, cases
from tests.property.check import check_case
from tests.property.check_local import any_reconfigurer, any_settings, check_locally
from tests.property.check_o_plus import check_o_plus
from tests.property.coverage import Coverage
from tests.property.o_plus_cases import o_plus_cases

REPORT_EVERY = 500
O_PLUS_EVERY = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("cases", type=int, help="how many cases to run")
    wanted = parser.parse_args().cases
    coverage, started = Coverage(), time.monotonic()

    with tempfile.TemporaryDirectory() as folder:

        @settings(max_examples=wanted, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
        @given(st.data())
        def check(data: st.DataObject) -> None:
            case: Case = data.draw(any_features().flatmap(cases))
            check_case(case, Path(folder))
            check_locally(case, data.draw(any_settings()), data.draw(any_reconfigurer()))
            if data.draw(st.integers(1, O_PLUS_EVERY)) == O_PLUS_EVERY:
                check_o_plus(data.draw(o_plus_cases()), data.draw(any_settings()), data.draw(any_reconfigurer()))
            coverage.add(case.features)
            if coverage.cases % REPORT_EVERY == 0:
                rate = coverage.cases / (time.monotonic() - started)
                print(f"{coverage.cases} of {wanted} cases, {rate:.0f} a second, no difference", file=sys.stderr)

        check()
    print(coverage.table())
    print(f"no difference from the reference in {coverage.cases} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
