"""Reads a load to replay from a file: two columns, seconds and tuples per second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidegate.errors import DataError, UserError, choices
from tidegate.simulate.loads import Trace

TIMES, RATES = "seconds", "rate"


def read_trace(path: str | Path) -> Trace:
    """The load in a .csv or .parquet file with the columns 'seconds' and 'rate', in any order of rows and columns.

    From each time on, the rate beside it holds until the next time. Times count from the first one, so that seconds
    since the epoch may be given.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    file = Path(path)
    table = _read(file)
    lacking = [name for name in (TIMES, RATES) if name not in table.column_names]
    if lacking:
        raise DataError(
            f"trace {file}: no column {choices(lacking)}; it has {choices(table.column_names)}, "
            f"and must have '{TIMES}' and '{RATES}' (tuples per second)"
        )
    if not table.num_rows:
        raise DataError(f"trace {file}: has no rows; give at least one time and rate")
    columns = []
    for name in (TIMES, RATES):
        column = table[name]
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise DataError(f"trace {file}: column '{name}' is of type {column.type}; it must hold numbers")
        if column.null_count or not pc.all(pc.is_finite(column)).as_py():
            raise DataError(f"trace {file}: column '{name}' has missing or infinite values; remove these rows")
        columns.append(column.cast(pa.float64()))
    ordered = pa.table(columns, names=[TIMES, RATES]).sort_by(TIMES)
    times = ordered[TIMES].to_numpy() - ordered[TIMES][0].as_py()
    try:
        return Trace(tuple(times.tolist()), tuple(ordered[RATES].to_pylist()))
    except UserError as error:
        raise DataError(f"trace {file}: {error}") from error


def _read(file: Path) -> Any:
    import pyarrow as pa

    if file.suffix not in (".csv", ".parquet"):
        raise UserError(f"trace {file}: '{file.suffix}' is not known; give a .csv or .parquet file")
    if not file.is_file():
        raise UserError(f"trace {file}: there is no such file; give one with the columns '{TIMES}' and '{RATES}'")
    try:
        if file.suffix == ".csv":
            from pyarrow import csv

            return csv.read_csv(file)
        from pyarrow import parquet

        return parquet.read_table(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"trace {file}: cannot be read as {file.suffix[1:]}: {error}") from error
