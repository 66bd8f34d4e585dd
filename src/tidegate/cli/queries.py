"""Commands on the query in a Python file: ``tidegate run``, ``explain`` and ``plan``; and ``tidegate demo``."""

from __future__ import annotations

import os
import runpy
import sys
import textwrap
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tidegate.cli import flag, option, show
from tidegate.cli.rescale import parsed_cells
from tidegate.elastic.options import Elastic
from tidegate.errors import QueryError, TidegateError, UserError, choices
from tidegate.stream import Stream, one_query

if TYPE_CHECKING:
    from tidegate.control.instantiate import Sampled

PREFERRED = "query"
WARM_UP = 2_000
UNKNOWN = "–"
MOST_FILES, ROWS_PER_FILE, SHOWN = 12, 500, 10

Target = Annotated[str, typer.Argument(metavar="FILE[:name]", help="a Python file with a query made by tg.stream(...)")]
Operators = Annotated[
    Literal["dedicated", "multi", "single"],
    typer.Option(help="what maps, filters and joins are made of: operators of their own, or Aggregates"),
]
HotKeys = Annotated[bool, flag("--hot-keys", "spread single keys over the cells of a step on Spark")]
Runtime = Annotated[Literal["spark", "local", "micro", "reference"], typer.Option("--on", help="the runtime")]


def run(
    target: Target,
    on: Runtime = "spark",
    to: Annotated[
        str | None, option("PATH", "folder for results, or - for JSON lines on standard output (default: print some)")
    ] = None,
    format: Annotated[Literal["parquet", "jsonl"] | None, typer.Option(help="default: by the suffix of PATH")] = None,  # noqa: A002
    checkpoint: Annotated[
        str | None, option("DIR", "default on Spark: _checkpoint in PATH; none with --on local")
    ] = None,
    continue_from: Annotated[
        str | None, option("DIR", "checkpoint of a stopped run on the other runtime, to go on from")
    ] = None,
    files_per_batch: Annotated[int | None, option("N", "how many files make a batch on Spark", min=1)] = None,
    instances: Annotated[
        int | None, option("N", "threads per subquery (default: 2), per cell on Spark (1)", min=1)
    ] = None,
    cells: Annotated[
        str | None, option("N", "tasks that share a step's keys on Spark: 4, or 1:8 for one at first")
    ] = None,
    elastic: Annotated[str | None, option("RULES", "follow the load: a controller's name, or a file of rules")] = None,
    late_to: Annotated[str | None, option("DIR", "folder for tuples that came too late")] = None,
    operators: Operators = "dedicated",
    hot_keys: HotKeys = False,
    ledger: Annotated[str | None, option("FILE", "with --elastic, record what is decided and why")] = None,
    metrics_port: Annotated[int | None, option("N", "with --elastic, metrics for Prometheus on loopback")] = None,
    page: Annotated[
        int | None, option("PORT", "with --elastic, a page about the run on loopback; 0: a free port")
    ] = None,
    master: Annotated[str | None, option("URL", "Spark master, such as local[4] (default: local, all cores)")] = None,
    quiet: Annotated[bool, flag("--quiet", "print nothing but results and errors")] = False,
) -> None:
    """Run the query in a Python file: the variable after the colon, else 'query', else the only query there is.

    Results go to a folder, or to the screen. A dict of queries is one query of
    several results, each in a folder of its name. If a run on Spark, or one on
    local with a checkpoint, is stopped or killed, the same command goes on where
    it was, and every result is in the folder exactly once. With --continue-from
    it goes on on the other runtime, into a new folder.

    Examples:
    tidegate run query.py --to out/                       on Spark
    tidegate run query.py:near --on local --instances 4   in this process
    tidegate run query.py --on local --to out/ --checkpoint cp/
    tidegate run query.py --to out2/ --continue-from cp/
    cat in.jsonl | tidegate run query.py --on local --to - | head -3
    tidegate run query.py --on local --elastic steady --ledger run.ledger
    """
    import tidegate as tg

    if elastic is None and (ledger, metrics_port, page) != (None, None, None):
        raise UserError("--ledger, --metrics-port and --page go with --elastic, such as --elastic steady")
    result = tg.run(
        load_query(target),
        on=on,
        to=to,
        format=format,
        checkpoint=checkpoint,
        spark=master,
        files_per_batch=files_per_batch,
        instances=instances,
        cells=None if cells is None else parsed_cells(cells),
        elastic=None if elastic is None else Elastic(elastic, ledger=ledger, metrics_port=metrics_port, page=page),
        late_to=late_to,
        operators=operators,
        hot_keys=hot_keys,
        continue_from=continue_from,
        progress=not quiet,
    )
    if not quiet:
        print(result, file=sys.stderr)


def explain(
    target: Target,
    on: Runtime = "spark",
    instances: Annotated[int, option("N", "instances to spread over", min=1)] = 2,
    rate: Annotated[float, option("R", "tuples per second")] = 100_000.0,
    alpha: Annotated[float | None, option("A", "cost of a channel")] = None,
    beta: Annotated[float | None, option("B", "cost of shipping")] = None,
    cells: Annotated[str, option("N", "tasks that share a step's keys on Spark: 4, or 1:8 for one at first")] = "1",
    operators: Operators = "dedicated",
    hot_keys: HotKeys = False,
) -> None:
    """Show how the query in a Python file is compiled, and why so.

    Shows the query as it is written, the subqueries it is cut into with every
    choice and its reason, and what three ways to spread it over instances cost.
    Nothing is run, and no Java is needed.

    Examples:
    tidegate explain query.py
    tidegate explain query.py --on local --instances 8 --rate 200000
    """
    costs = {name: value for name, value in (("alpha", alpha), ("beta", beta)) if value is not None}
    query = load_query(target)
    given = {"instances": instances, "rate": rate, "cells": parsed_cells(cells), "operators": operators, **costs}
    given["hot_keys"] = hot_keys
    print(query.explain(runtime=on, **given), end="")


def plan(
    target: Target,
    sample: Annotated[int, option("N", "tuples to read", min=1)] = 200_000,
    instances: Annotated[int | None, option("N", "distribute so many (default: one per core)", min=1)] = None,
    rate: Annotated[float | None, option("N", "tuples per second that the sources will deliver")] = None,
) -> None:
    """Say how many instances the query in a Python file should start with.

    Runs it in this process on the first tuples of its input, on one instance
    each, and says how many instances its subqueries should have: by what their
    tuples cost and how many reach them (StreamCloud's query instantiator). With
    --rate, how many are needed to keep up with so many tuples per second.

    Examples:
    tidegate plan query.py --instances 8
    tidegate plan query.py --sample 50000 --rate 200000
    """
    from rich.console import Console

    from tidegate.control.instantiate import instances_for, instantiate
    from tidegate.stream import cores
    from tidegate.tables import text_table

    with Console(stderr=True).status("measuring what tuples cost"):
        samples, read = sampled(load_query(target), sample)
    shares = instantiate(samples, instances or max(cores(), len(samples)))
    needed = {} if rate is None else instances_for(samples, read, rate)
    costs = [each.seconds_per_tuple for each in samples]
    columns = [
        ("subquery", "left", [each.subquery for each in samples]),
        ("tuples", "right", [f"{each.tuples:,}" for each in samples]),
        ("µs a tuple", "right", [UNKNOWN if cost is None else f"{cost * 1e6:.3g}" for cost in costs]),
        ("instances", "right", [str(shares[each.subquery]) for each in samples]),
    ]
    if needed:
        columns.append(("needed", "right", [str(needed[each.subquery]) for each in samples]))
    show(text_table(*columns))
    print(f"\nmeasured on {read:,} tuples of the input; {sum(shares.values())} instances distributed by work")
    if needed:
        print(f"{sum(needed.values())} needed for {rate:,.0f} tuples/s, if they do not slow one another down")


def sampled(query: Stream, tuples: int) -> tuple[list[Sampled], int]:
    """What each subquery did on the first tuples of the input, and how many these were; a bit more than asked for."""
    from tidegate.query.nodes import sources
    from tidegate.sources import BatchOrigin

    for source in sources(query.node):
        if not isinstance(source.origin, BatchOrigin):
            raise UserError(
                f"plan: stream '{source.name}' reads neither files nor a table, or takes files as they appear, and a sample "
                "must end and leave its input as it was; give it files, without follow"
            )
    _run_sample(query, WARM_UP)  # The first tuples pay for compiling.
    samples, read = _run_sample(query, tuples)
    if not read:
        raise UserError("plan: the input has no tuple, so what one costs cannot be measured; give it some")
    return samples, read


def _run_sample(query: Stream, tuples: int) -> tuple[list[Sampled], int]:
    from tidegate.control.instantiate import Sampled
    from tidegate.start import start

    job = start(query, to=lambda *_: None, instances=1)
    while not job.wait(0.005):
        if job.rows >= tuples:
            job.stop()
    subqueries = job.figures(time.monotonic()).subqueries
    samples = [Sampled(each.name, each.traffic.passed_rows, sum(each.busy_seconds.values())) for each in subqueries]
    return samples, job.rows


def demo(
    rows: Annotated[int, option("N", "how many calls", min=1)] = 200_000,
    to: Annotated[str, option("DIR", "folder for calls and results")] = "demo-out",
    seed: Annotated[int, option("N", "another seed gives other calls")] = 1,
    spark_only: Annotated[bool, flag("--spark-only", "leave out the rising load")] = False,
) -> None:
    """See a query run on local Spark, on generated data, and one in process follow its load.

    Generates some hours of phone calls, finds the customers whose calls are
    long on average (StreamCloud's running example: one hour of calls, every
    minute) on local Spark, and shows who they are. Then lets the load of a
    query in process rise and fall, and shows what was decided and why. Takes
    about a minute.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    import tidegate as tg
    from tidegate.compile.show_query import show_query
    from tidegate.demo.calls import END, calls, heavy_customers
    from tidegate.tables import rows_table

    root = Path(to)
    data = calls(
        root / f"calls-{rows}-{seed}", rows=rows, seed=seed, files=max(1, min(MOST_FILES, rows // ROWS_PER_FILE))
    )
    query = heavy_customers(data)
    print(f"{rows:,} calls are in {data}. The query:\n\n{show_query(query.node, '  ')}")
    print("\nIt runs on a local Spark, which takes some seconds to start.\n", flush=True)
    folder = _free(root / "heavy-customers")
    result = tg.run(query, to=folder)
    print(f"\n{result}")
    found = result.read()
    if found.num_rows:
        complete = found.filter(pc.less_equal(found["window_end"], pa.scalar(END, found["window_end"].type)))
        last = complete.filter(pc.equal(complete["window_end"], pc.max(complete["window_end"])))
        listed = last.sort_by([("avg_duration", "descending")]).slice(0, SHOWN)
        print("Heavy customers of the last whole hour:\n")
        show(rows_table(listed.select(["src", "window_start", "window_end", "calls", "avg_duration"])))
    print(f"\nAll results are in {folder}, as parquet. Another run of the demo writes another folder.")
    if not spark_only:
        _show_rising_load(_free(root / "rising-load.ledger"))


def _show_rising_load(ledger: Path) -> None:
    from tidegate.demo.rising_load import PHASES, follow_rising_load
    from tidegate.telemetry.read import decisions

    rates = ", then ".join(f"{rate:,} calls/s for {seconds:.0f} s" for seconds, rate in PHASES)
    print(f"\nNow in this process, without Spark, on instances that follow the load: {rates}.", flush=True)
    sent, counted = follow_rising_load(ledger)
    print(f"{sent:,} calls were sent and {counted:,} counted. What was decided, and why:\n")
    for each in decisions(ledger, changes_only=True).to_pylist():
        text = "{time_seconds:5.1f} s  {instances_before} → {instances} instances: {why}".format(**each)
        print(textwrap.fill(text, 110, subsequent_indent=" " * 9))
    print(f"\ntidegate ledger {ledger} has all of it; --explain N explains one decision in full.")


def _free(path: Path) -> Path:
    """A path that is not taken: the given one with the first number that is free."""
    number = 1
    while path.with_name(f"{path.name}-{number}").exists():
        number += 1
    return path.with_name(f"{path.name}-{number}")


def load_query(target: str) -> Stream:
    """The query that ``FILE`` or ``FILE:name`` names; a dict of queries is one of several results.

    Without a name it is the one called ``query``, or the only dict of queries, or the only query that the file defines. A
    folder stands for the ``__main__.py`` in it.
    """
    path, name = _file_of(target), None
    if not path.is_file():
        file, colon, name = target.rpartition(":")
        path = _file_of(file if colon else target)
        if not path.is_file():
            raise QueryError(f"there is no file {str(path)!r}")
    found = {key: value for key, value in _execute(path).items() if _is_query(value) and key[0] != "_"}
    if name is not None:
        if name in found:
            return one_query(name, found[name])
        raise QueryError(f"{path} has no query called '{name}'; it has {choices(found)}")
    several = [key for key, value in found.items() if isinstance(value, Mapping)]
    for candidates in ([PREFERRED] if PREFERRED in found else [], several, list(found)):
        if len(candidates) == 1:
            return one_query(candidates[0], found[candidates[0]])
    if not found:
        raise QueryError(f"{path} has no query: assign one to a variable, as in query = tg.stream(...)...")
    raise QueryError(
        f"{path} has several queries; name one, as in {path}:{next(iter(found))}. There are {choices(found)}"
    )


def _is_query(value: object) -> bool:
    results = list(value.values()) if isinstance(value, Mapping) else [value]
    return bool(results) and all(isinstance(result, Stream) for result in results)


def _file_of(target: str) -> Path:
    path = Path(target)
    return path / "__main__.py" if (path / "__main__.py").is_file() else path


def _execute(path: Path) -> dict[str, object]:
    """Run a file as a module of its own, and return what it defines.

    It is no module afterwards, so that its functions are shipped to Spark's workers whole, not by name; modules beside
    it are found by name, there and here, and so is the package that it lies in.
    """
    beside = package = path.parent.absolute()
    while (package / "__init__.py").is_file():
        package = package.parent
    folders = [*dict.fromkeys((str(beside), str(package)))]
    sys.path[:0] = folders
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH")]))
    try:
        return runpy.run_path(str(path), run_name=f"tidegate_query_{path.stem}")
    except (TidegateError, SystemExit):
        raise
    except SyntaxError as error:
        raise QueryError(f"{path}, line {error.lineno}: {error.msg}") from error
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        place = f"{path}, line {lines[-1]}" if lines else str(path)
        raise QueryError(f"{place}: {type(error).__name__}: {error}") from error
