"""Functions of one tuple that are compiled: when, what is told where they are not, and what happens at the edges."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.errors import DataError
from tidegate.operators import compiled_slots
from tidegate.query.nodes import KeyedApply
from tidegate.query.translated.program import Translated, translated

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [("ts", TIME), ("k", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("tags", pa.list_(pa.string()))]
)
LIMIT = 3


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_slots, "COMPILE_AFTER", 0)
    monkeypatch.setattr(compiled_slots, "LEAST_BATCH", 0)
    monkeypatch.setattr(compiled_slots, "_tallies", {})


def table(*rows: tuple[Any, ...]) -> pa.Table:
    """Tuples of k, n and x, one every microsecond."""
    columns = list(zip(*rows, strict=True))
    made = [pa.array(range(len(rows)), TIME), *columns, [None] * len(rows)]
    return pa.table([pa.array(list(each), kind) for each, kind in zip(made, SCHEMA.types, strict=True)], schema=SCHEMA)


def query(update: Any, source: Any = SCHEMA, **given: Any) -> tg.Stream:
    settings = {"state": {"a": pa.int64()}, "initial": {"a": 0}, "returns": {"a": pa.int64()}, "name": "mine", **given}
    return tg.stream(source, time="ts", name="s").key_by("k").unbounded().apply(update=update, **settings)


def loops(stream: tg.Stream) -> Translated:
    assert isinstance(stream.node, KeyedApply)
    return translated(stream.node)


def obstacle(update: Any, **given: Any) -> str:
    found = loops(query(update, **given))
    assert found.update is None
    return found.obstacles[0]


def ran(stream: tg.Stream, on: str = "local") -> list[Any]:
    rows: list[Any] = []
    tg.run(stream, on=on, to=lambda each: rows.extend(each.to_pylist()), progress=False, instances=1)
    return [row["a"] for row in rows]


def summing(window: Any, t: Any) -> Any:
    total = window.state["a"] + t["n"]
    return tg.updated({"a": total}, rows={"a": total})


def left() -> tuple[int, int]:
    (tally,) = compiled_slots._tallies.values()
    return tally.tried, tally.left


def test_a_sum_is_compiled() -> None:
    assert ran(query(summing, table(("p", 1, 0.0), ("p", 2, 0.0), ("q", 5, 0.0)))) == [1, 3, 5]
    assert left() == (3, 0)


def test_what_is_not_compiled_is_told_with_its_line() -> None:
    def looping(window: Any, t: Any) -> Any:
        total = 0
        for tag in t["tags"]:
            total += len(tag)
        return tg.updated({"a": total})

    line = looping.__code__.co_firstlineno + 2
    told = obstacle(looping)
    assert told == f'of update: test_compiled_apply.py, line {line}: `for tag in t["tags"]:`: `for` is not compiled'
    explained = " ".join(query(looping).explain(runtime="local").split())
    assert f"interpreted, since of update: test_compiled_apply.py, line {line}" in explained
    assert "update is compiled once there is enough to do" in " ".join(query(summing).explain(runtime="local").split())


@pytest.mark.parametrize(
    ("update", "why"),
    [
        (lambda window, t: tg.updated({"a": len(t["k"])}), "calling len like this is not compiled"),
        (lambda window, t: tg.updated({"a": t["n"] ** 2}), "this operator on int and int is not compiled"),
        (lambda window, t: tg.updated({"a": t["x"]}), "'a' is int64, and gets a float"),
        (lambda window, t: tg.updated({"b": 1}), "the state does not have the declared names"),
        (lambda window, t: tg.updated({"a": 1 if t["k"] < "b" else 2}), "a text is no number"),
        (
            lambda window, t: tg.updated({"a": t["tags"]}),
            "the column 'tags' is list<item: string>, which is not compiled",
        ),
        (lambda window, t: tg.updated({"a": t["m"]}), "there is no 'm'"),
        (lambda window, t: tg.updated({"a": window.end + 1}), "it is None here"),
        (lambda window, t: tg.updated({"a": [each + 1 for each in (1, 2)]}), "a comprehension is not compiled"),
        (lambda window, t: tg.updated({"a": 2**70}), "this operator on int and int is not compiled"),
        (lambda window, t: tg.updated({"a": 99999999999999999999}), "beyond 64 bits"),
        (lambda window, t: tg.updated({"a": 1}, retire=1), "retire is neither True nor False"),
        (lambda window, t: {"a": 1}, "it returns neither tg.updated(...) nor None"),
        (max, "builtin_function_or_method is no plain function"),
    ],
)
def test_refusals_name_what_prevents_compiling(update: Callable[..., Any], why: str) -> None:
    assert why in obstacle(update)


def test_what_lies_beyond_64_bits_is_computed_by_python() -> None:
    def shifted(window: Any, t: Any) -> Any:
        return tg.updated({"a": window.state["a"] + 1}, rows={"a": (t["n"] * 4 + 1) // 8})

    numbers = [1, 2**62, 5, -(2**63), 6]
    tuples = table(*(("p", number, 0.0) for number in numbers))
    assert ran(query(shifted, tuples)) == [(number * 4 + 1) // 8 for number in numbers]
    assert left() == (5, 2)


def test_errors_are_pythons_own_and_name_the_tuple() -> None:
    tuples = table(("p", 1, 0.0), ("q", 2, 0.0), ("p", None, 0.0), ("q", None, 0.0))
    with pytest.raises(DataError) as compiled:
        ran(query(summing, tuples))
    with pytest.raises(DataError) as lawful:
        tg.run(query(summing, tuples), on="reference", progress=False)
    assert str(compiled.value) == str(lawful.value)
    assert "step 'mine': update failed for the tuple {'ts': " in str(compiled.value)
    assert "TypeError: unsupported operand type(s) for +: 'int' and 'NoneType'" in str(compiled.value)


def test_a_state_that_does_not_fit_is_refused_by_python() -> None:
    given = {"state": {"a": pa.int8()}, "initial": {"a": 0}}
    with pytest.raises(DataError, match="a: 130 is not int8"):
        ran(query(summing, table(("p", 100, 0.0), ("p", 30, 0.0)), **given))


def test_names_outside_are_read_as_they_are_when_a_batch_comes() -> None:
    limited = 5

    def under(window: Any, t: Any) -> Any:
        return tg.updated({"a": window.state["a"]}, rows={"a": t["n"]} if t["n"] < limited + LIMIT else None)

    tuples = table(("p", 7, 0.0), ("p", 8, 0.0), ("p", 9, 0.0))
    assert ran(query(under, tuples)) == [7]
    slots = compiled_slots.tuple_slots(query(under).node, None, (), query(under).node.form)  # type: ignore[arg-type, attr-defined]
    assert isinstance(slots, compiled_slots.CompiledSlots)
    assert slots._holds()
    limited = 6
    assert not slots._holds()
    assert ran(query(under, tuples)) == [7, 8]


def test_a_lambda_a_closure_a_default_and_a_generator() -> None:
    step = 2
    first = query(lambda window, t, more=10: tg.updated({"a": window.state["a"] + step + more}))
    assert loops(first).update is not None

    def twice(window: Any) -> Any:
        yield {"a": window.state["a"]}
        if window.state["a"] > 1:
            yield {"a": -1}

    stream = tg.stream(table(("p", 1, 0.0), ("p", 1, 0.0), ("q", 1, 0.0)), time="ts").key_by("k").window("1s")
    made = stream.apply(
        update=lambda window, t: tg.updated({"a": window.state["a"] + 1}),
        output=twice,
        state={"a": pa.int64()},
        initial={"a": 0},
        returns={"a": pa.int64()},
    )
    assert loops(made).output is not None
    assert sorted(ran(made)) == [-1, 1, 2]


def test_a_function_that_always_falls_back_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compiled_slots, "TRY_FOR", 10)
    tuples = table(*(("p", 2**62, 0.0) for _ in range(40)))
    stream = query(lambda window, t: tg.updated({"a": 1}, rows={"a": t["n"] * 4 // 8}), tuples)
    with caplog.at_level(logging.WARNING, "tidegate.apply"):
        assert ran(stream) == [2**61] * 40
    (tally,) = compiled_slots._tallies.values()
    assert tally.given_up
    assert "contributions were beyond what is compiled" in caplog.text


def test_a_retired_key_begins_anew() -> None:
    def three(window: Any, t: Any) -> Any:
        seen = window.state["a"] + 1
        return tg.updated({"a": seen}, rows={"a": seen}, retire=seen == 3)

    assert ran(query(three, table(*(("p", 0, 0.0) for _ in range(7))))) == [1, 2, 3, 1, 2, 3, 1]
    assert left() == (7, 0)


def test_a_dict_that_is_changed_and_a_list_that_grows() -> None:
    def grown(window: Any, t: Any) -> Any:
        state, rows = dict(window.state), []
        state["a"] += t["n"]
        if state["a"] > 2:
            rows.append({"a": state["a"]})
            state["a"] = 0
        rows.append({"a": -1})
        return tg.updated(state, rows=rows)

    tuples = table(("p", 1, 0.0), ("p", 2, 0.0), ("p", 2, 0.0))
    assert ran(query(grown, tuples)) == [-1, 3, -1, -1]
    assert left() == (3, 0)

    def shared(window: Any, t: Any) -> Any:
        state = dict(window.state)
        other = state
        other["a"] += 1
        return tg.updated(state)

    assert "'state' would be known under two names" in obstacle(shared)


def test_a_dict_known_twice_is_not_compiled() -> None:
    def listed(window: Any, t: Any) -> Any:
        rows = [{"a": 1}]
        row = rows[0]
        row["a"] = 2
        return tg.updated(rows=rows)

    def returned_later(window: Any, t: Any) -> Any:
        state = {"a": 1}
        done = tg.updated(state)
        state["a"] = 2
        return done

    def grown_tuple(window: Any, t: Any) -> Any:
        rows = ({"a": 1},)
        rows.append({"a": 2})  # type: ignore[attr-defined]
        return tg.updated(rows=rows)

    assert "'rows[0]' would be known under two names" in obstacle(listed)
    assert "returned at once" in obstacle(returned_later)
    assert "'rows' is no list of the function's own" in obstacle(grown_tuple)
