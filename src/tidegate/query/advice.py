"""Steps and arguments that people know from elsewhere: what to write here instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tidegate.errors import CallError, UnknownStepError

P = ParamSpec("P")
R = TypeVar("R")

_KEY_BY = "tuples are grouped with .key_by('column')"
_MAP = "functions over Arrow batches go with .map_batches(function)"
_COLUMNS = "columns are added with .with_columns(name=expression)"
_SELECT = "columns are left out or renamed with .select(...)"
_RUN = "a query is a value; run it with tg.run(query, ...) or tg.start(query)"
_ENDLESS = "a stream is without end, and what looks at all of it has no meaning: it has no order and no first rows"
_SESSION = "session windows are .key_by('column').session(gap='30 minutes').aggregate(n=tg.count())"
_COUNTED = "windows in number of tuples are .key_by('column').count_window(100, every=10).aggregate(n=tg.count())"
_ROLLING = "the last 100 tuples of a key are .key_by('column').count_window(100, every=1).aggregate(n=tg.count())"
_AS_OF = "the last tuple of another stream at or before each is .join_asof(quotes, on='share', tolerance='5 seconds')"
_LOOKUP = "columns of a table, or of a stream of its changes, are added with .lookup(customers, on='id')"
_ROUTE = "a stream is parted with .route(big=nw.col('n') > 100, rest=True), and tg.run({...}) writes several results"
_AGGREGATE = "aggregates need windows: .key_by('column').window('1 minute').aggregate(n=tg.count()), or without key_by"
_AFTER_WINDOW = "name what to compute: .aggregate(n=tg.count()), .aggregate(total=tg.sum('x'))"
_STATELESS = "stateless steps stand before key_by, or after what .aggregate(...) or .apply(...) returns"
_FOLDS = ("count", "sum", "mean", "avg", "min", "max", "first", "last", "distinct", "reduce", "fold")
_APPLY = "gathered streams have different columns; your own functions see them all: .window(...).apply(...)"
_STATELESS_STEPS = (
    "filter",
    "where",
    "select",
    "with_columns",
    "map",
    "map_batches",
    "union",
    "join",
    "join_asof",
    "lookup",
)

_OTHER_WINDOWS = {
    **dict.fromkeys(("session_window", "sessions"), _SESSION),
    **dict.fromkeys(("countWindow", "countWindowAll", "tumbling_count", "sliding_count", "count_windows"), _COUNTED),
    **dict.fromkeys(("rolling", "rows", "rows_between", "over", "last_n"), _ROLLING),
}
_OF_STREAMS = {
    **_OTHER_WINDOWS,
    **dict.fromkeys(("aggregate", "agg", "apply", "apply_columns", "unbounded", *_FOLDS), _AGGREGATE),
    **dict.fromkeys(("group_by", "groupby", "groupBy", "keyBy", "partition_by"), _KEY_BY),
    **dict.fromkeys(("merge_asof", "asof_join", "asofJoin", "join_as_of", "asof", "temporal_join"), _AS_OF),
    **dict.fromkeys(("lookup_join", "broadcast_join", "map_join", "enrich", "merge", "join_table"), _LOOKUP),
    **dict.fromkeys(("split", "branch", "partition", "side_output", "get_side_output", "tee"), _ROUTE),
    "where": "tuples are kept with .filter(nw.col('x') > 3)",
    **dict.fromkeys(("map", "flat_map", "flatMap", "map_partitions", "mapInArrow", "transform", "pipe"), _MAP),
    **dict.fromkeys(("withColumn", "with_column", "withColumns", "assign", "mutate"), _COLUMNS),
    **dict.fromkeys(("drop", "rename", "withColumnRenamed"), _SELECT),
    **dict.fromkeys(("sort", "order_by", "orderBy", "limit", "head", "tail", "take", "dropDuplicates"), _ENDLESS),
    **dict.fromkeys(
        ("run", "start", "collect", "show", "execute", "to_pandas", "toPandas", "write", "writeStream"), _RUN
    ),
}
_OF_KEYED = {
    **_OTHER_WINDOWS,
    **dict.fromkeys(("aggregate", "agg", "apply", "apply_columns", *_FOLDS), _AGGREGATE),
    **dict.fromkeys(_STATELESS_STEPS, _STATELESS),
}
_OF_WINDOWED = {**dict.fromkeys(("agg", *_FOLDS), _AFTER_WINDOW), **dict.fromkeys(_STATELESS_STEPS, _STATELESS)}
_ADVICE: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "Stream": _OF_STREAMS,
        "Builder": _OF_STREAMS,
        "Keyed": _OF_KEYED,
        "Windowed": _OF_WINDOWED,
        "Sessions": {
            **_OF_WINDOWED,
            **dict.fromkeys(("apply", "apply_columns"), "sessions have aggregates alone: .aggregate(n=tg.count())"),
        },
        "CountWindows": {
            **_OF_WINDOWED,
            **dict.fromkeys(
                ("apply", "apply_columns"), "count windows have aggregates alone: .aggregate(n=tg.count())"
            ),
        },
        "Gathered": dict.fromkeys(("aggregate", "agg", "apply", *_FOLDS), _APPLY),
        "GatheredWindows": dict.fromkeys(("aggregate", "agg", *_FOLDS), _APPLY),
    }
)


_RESULTS = "results go to=..."
_INSTANCES = "say instances=..."
_TIME = "event time is named with time=..."
_DISORDER = "how far out of order tuples may be is said with disorder=..."
_ON = "columns of different names are on=[('a', 'b')]"
_WHERE = "a predicate is where=lambda l, r: ..."
_SUFFIXES = "say suffixes=('_left', '_right')"
_EVERY = "how far a window advances is said with every=..., as in .window('1 hour', every='1 minute')"
_FUNCTIONS = {"init": "say initial={...}", "schema": "say returns={...}"}

# By function, what to say for an argument it does not take; as "positional" for one too many without name, and as
# "missing" for one that is left out.
_ARGUMENTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "stream": {
            **dict.fromkeys(("timestamp", "event_time", "ts"), _TIME),
            "watermark": _DISORDER,
            "lateness": f"{_DISORDER}, and lateness=... belongs to window(...)",
            "format": "the suffix of files says their format",
            "missing": "event time is a column of timestamps, named as in tg.stream(..., time='ts')",
        },
        "map_batches": {"returns": "say schema={...}"},
        "join": {
            **dict.fromkeys(("left_on", "right_on"), _ON),
            "by": "keys are named with on=...",
            "tolerance": "how far apart in time is said with within=...",
            **dict.fromkeys(("n", "count", "rows", "size"), "the last tuples of the other side are said with last=100"),
            **dict.fromkeys(("condition", "predicate"), _WHERE),
            **dict.fromkeys(("suffix", "lsuffix", "rsuffix"), _SUFFIXES),
        },
        "lookup": {
            **dict.fromkeys(("by", "key", "left_on", "right_on"), f"keys are named with on=...; {_ON}"),
            **dict.fromkeys(
                ("tolerance", "within"), "a lookup goes back any time; with a tolerance it is .join_asof(...)"
            ),
            **dict.fromkeys(("delete", "is_deleted", "deletes"), "say deleted=..., a column or an expression"),
            "missing": "it takes a table or a stream of changes, and the key, as in .lookup(customers, on='id')",
        },
        "join_asof": {
            **dict.fromkeys(
                ("by", "left_by", "right_by"), "keys are named with on=..., as in on='share' or on=[('a', 'b')]"
            ),
            **dict.fromkeys(("left_on", "right_on"), f"event times are those of the streams; {_ON}"),
            **dict.fromkeys(
                ("direction", "strategy", "allow_exact_matches"),
                "it looks back, for the last tuple at or before: what is ahead is not known yet",
            ),
            **dict.fromkeys(("within", "max_distance"), "how far before it may lie is said with tolerance=..."),
            **dict.fromkeys(
                ("suffixes", "lsuffix", "rsuffix"), "only columns of the right side get a suffix; say suffix=..."
            ),
        },
        "window": {
            **dict.fromkeys(("slide", "step", "hop", "period", "positional"), _EVERY),
            "length": "the size comes first",
        },
        "session": {
            "lateness": "a session that has ended is emitted once and merges with nothing; how far out of order tuples may "
            "be is said with disorder=... of the stream",
            **dict.fromkeys(
                ("timeout", "size", "every", "within"), "how far apart its tuples may be is said with gap=..."
            ),
            **dict.fromkeys(
                ("max", "max_size", "longest", "maximum"), "how long a session may last is said with most=..."
            ),
        },
        "count_window": {
            **dict.fromkeys(
                ("slide", "step", "hop", "advance", "positional"),
                "by how many tuples a window advances is said with every=..., as in .count_window(100, every=10)",
            ),
            **dict.fromkeys(("n", "count", "length"), "the size, a number of tuples, comes first"),
            "lateness": "a full window is emitted once; how far out of order tuples may be is said with disorder=... of the "
            "stream",
        },
        "aggregate": {"positional": "name each aggregate, as in n=tg.count()"},
        "apply": _FUNCTIONS,
        "apply_columns": _FUNCTIONS,
        "explain": {"on": "name it with runtime=..."},
        "run": {**dict.fromkeys(("output", "sink"), _RESULTS), "runtime": "say on='spark' or on='local'"},
        "start": dict.fromkeys(("threads", "parallelism", "workers"), _INSTANCES),
        "monoid": {"missing": "a monoid has columns, state={...}, lift=..., merge=..., finish=... and returns=..."},
    }
)


class Advises:
    """Answers the name of a step that is not there with the one that is."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            if name.startswith("_"):
                raise AttributeError(f"'{kind}' object has no attribute '{name}'")
            steps = [step for step in dir(type(self)) if not step.startswith("_")]
            known = _ADVICE.get(kind, {}).get(name)
            close = get_close_matches(name, steps, 1)
            instead = known or (f"did you mean '{close[0]}'?" if close else f"there are {', '.join(steps)}")
            raise UnknownStepError(f"{kind}: there is no step '{name}'; {instead}")


def advised(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function answer arguments that it does not take with those that it does."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        signature = inspect.signature(function)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            advice = _advice(function.__name__, list(signature.parameters), kwargs, str(error))
            raise CallError(advice) from None
        return function(*args, **kwargs)

    return call


def _advice(name: str, takes: list[str], given: Mapping[str, Any], error: str) -> str:
    """What is wrong with a call, and what to write."""
    instead = _ARGUMENTS.get(name, {})
    listed = ", ".join(each for each in takes if each != "self") or "nothing"
    for unknown in (each for each in given if each not in takes):
        if unknown in instead:
            return f"{name}: there is no '{unknown}' (got {unknown}={given[unknown]!r}); {instead[unknown]}"
        close = get_close_matches(unknown, takes, 1)
        meant = f"did you mean '{close[0]}'? " if close else ""
        return f"{name}: there is no '{unknown}'; {meant}It takes {listed}"
    advice = instead.get("positional" if "too many positional" in error else "missing", f"it takes {listed}")
    return f"{name}: {error}; {advice}"
