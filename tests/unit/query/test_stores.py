"""Stores: what is declared, what is refused, and that they are maps in canonical order."""

from __future__ import annotations

import pickle
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.query import stores
from tidegate.query.names import unique_names
from tidegate.query.schema import canonical
from tidegate.query.stores import Store, StoreError
from tidegate.testing import answer

EVENTS = pa.schema([("ts", pa.timestamp("us")), ("k", pa.string()), ("x", pa.int64())])
COUNTS = tg.store(key=pa.string(), value=pa.int64())
RETURNS = {"k": pa.string()}


def keyed() -> Any:
    return tg.stream(EVENTS, time="ts", name="events").key_by("k")


def run(update: Any, **settings: Any) -> Any:
    query = keyed().unbounded().apply(update=update, stores={"seen": COUNTS}, returns=RETURNS, name="s", **settings)
    return answer(query, {"events": pa.table({"ts": [0], "k": ["a"], "x": [7]}).cast(EVENTS)})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"stores": {"seen": pa.int64()}}, "stores are declared by name, as in stores="),
        ({"stores": COUNTS}, "stores are declared by name"),
        ({"stores": {"s": tg.store(key=pa.list_(pa.int64()))}}, "store 's': its key 'key' is list"),
        (
            {"stores": {"s": tg.store(key=pa.string(), value=pa.uint8())}},
            "has the type uint8, which tidegate does not carry",
        ),
        ({"stores": {"s": COUNTS}, "update": None}, "the default update stores whole tuples and fills no store"),
        ({"stores": {"s": COUNTS}, "windows": "single"}, "does not know your state and stores; give slide"),
    ],
)
def test_what_cannot_be_kept_is_refused_when_the_query_is_built(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(tg.QueryError, match=told):
        keyed().window("1 hour").apply(
            **{"update": lambda window, one: None, "output": lambda window: None, "returns": RETURNS, **settings}
        )


def test_columns_of_a_store_are_types() -> None:
    with pytest.raises(tg.QueryError, match=r"store: value is int, a type of Python; write pa.int64\(\) instead"):
        tg.store(key=pa.string(), value=int)  # type: ignore[arg-type]
    with pytest.raises(tg.QueryError, match="store: key has no columns"):
        tg.store(key={})


@pytest.mark.parametrize(
    ("update", "told"),
    [
        (
            lambda window, one: window.store("seen").put("b", "many"),
            r"step 's': store 'seen' of the key 'a': put, for 'b', a value that was not declared: 'many' is not int64 "
            r"\(update, for the tuple",
        ),
        (
            lambda window, one: window.store("seen").get(7),
            "step 's': store 'seen' of the key 'a': get of a key that was not declared: key: 7 is not string",
        ),
        (
            lambda window, one: window.store("sen"),
            "step 's': there is no store 'sen'; declared in stores=... are 'seen'",
        ),
        (lambda window, one: window.store("seen").put("b", 2**63), "is not int64"),
    ],
)
def test_a_wrong_use_names_step_key_store_and_value(update: Any, told: str) -> None:
    with pytest.raises(tg.DataError, match=told):
        run(update)


def test_output_reads_and_does_not_change_a_store() -> None:
    query = keyed().window("1 hour")
    applied = query.apply(
        update=lambda window, one: window.store("seen").put("b", 1),
        output=lambda window: [window.store("seen").put("b", 2)],
        stores={"seen": COUNTS},
        returns=RETURNS,
    )
    with pytest.raises(
        tg.DataError, match="put in output, which reads what the window holds; change it in update or slide"
    ):
        answer(applied, {"events": pa.table({"ts": [0], "k": ["a"], "x": [7]}).cast(EVENTS)})


def test_a_key_of_several_columns_is_a_tuple_and_a_value_of_columns_a_dict() -> None:
    kind = tg.store(key={"on": pa.date32(), "n": pa.int8()}, value={"a": pa.float64(), "b": pa.list_(pa.int64())})
    store = Store("s", kind, "k")
    store.put((date(2026, 1, 2), 3), {"a": 1, "b": [4, 5]})
    assert store.items() == [((date(2026, 1, 2), 3), {"a": 1.0, "b": (4, 5)})]
    for wrong in (date(2026, 1, 2), (date(2026, 1, 2),), [date(2026, 1, 2), 3]):
        with pytest.raises(StoreError, match="a key is a tuple of 'on', 'n'"):
            store.get(wrong)
    for value in ({"a": 1.0}, None, {"a": "x", "b": []}):
        with pytest.raises(StoreError, match="a value that was not declared"):
            store.put((None, 3), value)
    with pytest.raises(TypeError, match="cannot be changed"):
        store.get((date(2026, 1, 2), 3))["a"] = 2.0


def test_explain_shows_stores_and_a_query_with_them_travels() -> None:
    query = keyed().unbounded().apply(update=lambda window, one: None, stores={"seen": COUNTS}, returns=RETURNS)
    assert "keeps stores seen (key: string -> int64)" in " ".join(query.explain().split())
    form = unique_names(query.node).form  # type: ignore[union-attr]
    assert str(pickle.loads(pickle.dumps(form.stores["seen"]))) == str(COUNTS)


FLOATS = st.one_of(st.none(), st.sampled_from([-0.0, 0.0, float("nan"), float("inf"), 1.5, 2.0]))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "é", "Z"]))
PAIRS = st.tuples(TEXTS, st.one_of(st.none(), st.integers(-2, 2)))
KINDS = {
    "floats": (FLOATS, {"x": pa.float64()}),
    "texts": (TEXTS, {"k": pa.string()}),
    "pairs": (PAIRS, {"k": pa.string(), "n": pa.int32()}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lookups", [stores.MOST_LOOKUPS, 3])
def test_a_store_is_a_map_in_canonical_order(kind: str, lookups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a list of pairs that is searched and sorted; so are its changes, applied to what it was before."""
    monkeypatch.setattr(stores, "MOST_LOOKUPS", lookups)
    keys, columns = KINDS[kind]
    steps = st.lists(
        st.tuples(st.sampled_from(["put", "put", "remove", "clear", "items", "first"]), keys, st.integers(0, 3))
    )

    @given(before=st.lists(st.tuples(keys, st.integers(0, 3)), unique_by=lambda one: canonical(one[0])), steps=steps)
    def check(before: list[Any], steps: list[Any]) -> None:
        parts = [one if len(columns) > 1 else (one,) for one, _ in before]
        kept = {f"e{at}": pa.array([part[at] for part in parts], of) for at, of in enumerate(columns.values())}
        store = Store(
            "s",
            tg.store(columns, pa.int64()),
            "k",
            pa.table({**kept, "v": pa.array([v for _, v in before], pa.int64())}),
        )
        after = {canonical(one): (one, value) for one, value in run_steps(store, list(before), steps)}
        changed = {canonical(one): (one, value) for one, value in before}
        for key, alive, value in store.changes():
            one = key if len(columns) > 1 else key[0]
            changed.pop(canonical(one), None)
            if alive:
                changed[canonical(one)] = one, value
        assert canonical(sorted(changed.values(), key=canonical)) == canonical(sorted(after.values(), key=canonical))

    check()


def run_steps(store: Store, model: list[Any], steps: list[Any]) -> list[Any]:
    """Do the same to a store and to a list of pairs, and compare all that can be asked; what the list is then."""
    for step, key, value in steps:
        found = [one for one in model if canonical(one[0]) == canonical(key)]
        assert store.get(key, -1) == (found[0][1] if found else -1)
        assert store.has(key) == bool(found)
        if step == "put":
            store.put(key, value)
        elif step == "remove":
            assert store.remove(key) == bool(found)
        elif step == "clear":
            store.clear()
        if step in ("put", "remove"):
            model = [one for one in model if canonical(one[0]) != canonical(key)]
        model = [] if step == "clear" else model + ([(key, value)] if step == "put" else [])
        assert len(store) == len(model)
        ordered = sorted(model, key=lambda one: canonical(one[0]))
        if step == "first":
            assert canonical(store.first()) == canonical(ordered[0] if ordered else None)
        if step == "items":
            assert canonical(store.items()) == canonical(ordered)
            assert canonical(list(store)) == canonical([one for one, _ in ordered])
    return model
