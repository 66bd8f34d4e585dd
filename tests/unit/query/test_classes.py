"""Plain classes as operators: the key is found, and what prevents it is refused with its line."""

from __future__ import annotations

import inspect
import random
import re
from collections import defaultdict
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.query.nodes import KeyedApply

TRADES = pa.schema(
    [
        ("ts", pa.timestamp("us")),
        ("symbol", pa.string()),
        ("venue", pa.int64()),
        ("price", pa.float64()),
        ("n", pa.int64()),
    ]
)
RETURNS = {"symbol": pa.string()}
SHARED: list[int] = []
LIMIT = 3


def applied(given: type, **settings: Any) -> KeyedApply:
    stream = tg.stream(TRADES, time="ts", name="trades")
    node = stream.apply(tg.operator(given, returns=RETURNS, **settings), name="s").node
    assert isinstance(node, KeyedApply)
    return node


def helped(n: int) -> int:
    return n + 1


class Composite:
    SCALE = 2

    def __init__(self) -> None:
        self.half = -0.5
        self.names = ("a", 1)
        self.days: dict[tuple[str, int], date] = {}
        self.pairs: dict[tuple[str, int], dict[tuple[str, int], list[float]]] = {}
        self.other: "dict[tuple[str, int], bool]" = dict()  # noqa: C408, UP037

    def process(self, trade: Any) -> Any:
        symbol = trade["symbol"]
        key = symbol, trade["venue"]
        if key in self.days and (symbol, trade["venue"]) not in self.other:
            self.other[symbol, trade["venue"]] = helped(self.SCALE) > LIMIT + random.Random(0).random() + self.half
        inside = self.pairs.setdefault(key, {})
        inside[symbol, 1] = [*inside.get((symbol, 1), ()), trade["price"]]
        self.days.get(key)
        return [{"symbol": f"{len(inside)} {self.twice(trade['n'])}"}]

    @staticmethod
    def twice(n: int) -> int:
        return 2 * n


def test_the_key_is_what_all_dicts_are_indexed_by() -> None:
    node = applied(Composite)
    assert node.key_schema == pa.schema([("symbol", pa.string()), ("venue", pa.int64())])
    form: Any = node.form
    assert form.states[0] == pa.schema([("days", pa.date32()), ("pairs", pa.bool_()), ("other", pa.bool_())])
    assert {name: str(of) for name, of in form.stores.items()} == {
        "pairs": "(key0: string, key1: int64 -> list<item: double>)"
    }


class Undeclared:
    def __init__(self) -> None:
        self.last = {}  # type: ignore[var-annotated]
        self.seen = defaultdict(set)  # type: ignore[var-annotated]

    def process(self, t: Any) -> None:
        self.last[t["symbol"]] = t["ts"]
        self.seen[t["symbol"]].add(t["n"])


def test_types_are_declared_where_they_are_not_annotated() -> None:
    form: Any = applied(Undeclared, state={"last": pa.timestamp("us"), "seen": tg.store(key=pa.int64())}).form
    assert form.states[0] == pa.schema([("last", pa.timestamp("us")), ("seen", pa.bool_())])
    with pytest.raises(tg.QueryError, match="state declares 'lst', and __init__ creates the dicts 'last', 'seen'"):
        applied(Undeclared, state={"lst": pa.int64()})
    with pytest.raises(tg.QueryError, match="declared as a map for each key, and the defaultdict begins with another"):
        applied(Undeclared, state={"last": pa.int64(), "seen": tg.store(key=pa.int64(), value=pa.int64())})


def test_the_keys_of_the_stream_are_as_annotated() -> None:
    class Count:
        def __init__(self) -> None:
            self.n: dict[str, int] = {}

        def process(self, t: Any) -> None:
            self.n[t["venue"]] = 1

    told = "step 's': the keys of Count.n are annotated as string, and venue of the stream is int64; change one of them"
    with pytest.raises(tg.QueryError, match=told):
        applied(Count)


def test_a_key_is_a_column_of_the_stream() -> None:
    class Count:
        def __init__(self) -> None:
            self.n: dict[str, int] = {}

        def process(self, t: Any) -> None:
            self.n[t["ticker"]] = 1

    with pytest.raises(tg.QueryError, match="step 's': unknown column 'ticker'; the stream has"):
        applied(Count)


def test_functions_need_keys() -> None:
    with pytest.raises(tg.QueryError, match=r"functions need keys: \.key_by\('column'\)\.window"):
        tg.stream(TRADES, time="ts").apply(update=lambda window, one: None)
    with pytest.raises(tg.QueryError, match=r"operator 'dict': it has no method process; write def process\(self, t\)"):
        tg.operator(dict, returns=RETURNS)
    with pytest.raises(tg.QueryError, match="operator: takes a class"):
        tg.operator(helped, returns=RETURNS)  # type: ignore[arg-type]


# Each method stands in a class of its own with two dicts, and the marked line is what is refused.
def other_index(self: Any, t: Any) -> Any:
    self.n[t["symbol"]] = 1
    self.last[t["venue"]] = 2.0  # HERE self.last is indexed by t['venue'], and line


def computed_index(self: Any, t: Any) -> Any:
    self.n[t["symbol"].lower()] = 1  # HERE is indexed by t['symbol'].lower(), which is no attribute of the tuple; index


def changed_index(self: Any, t: Any) -> Any:
    key = t["symbol"]
    if t["n"]:
        key = "all"
    self.n[key] = 1  # HERE self.n is indexed by key, which is no attribute of the tuple


def all_items(self: Any, t: Any) -> Any:
    self.n[t["symbol"]] = 1
    for key, n in self.n.items():  # HERE self.n.items() goes over all keys, and each instance has some of them; keep
        yield {"symbol": f"{key} {n}"}


def all_keys(self: Any, t: Any) -> Any:
    return [{"symbol": key} for key in self.n]  # HERE self.n goes over all keys


def size(self: Any, t: Any) -> Any:
    return {"symbol": str(len(self.n))}  # HERE len(self.n) goes over all keys


def whole(self: Any, t: Any) -> Any:
    all_ = self.n  # HERE self.n is used as a whole; it may be used by its key alone
    all_[t["symbol"]] = 1


def emptied(self: Any, t: Any) -> Any:
    self.n = {}  # HERE self.n is used as a whole


def unkeyed(self: Any, t: Any) -> Any:
    self.n[t["symbol"]] = 1
    self.total += t["n"]  # HERE self.total is no dict that __init__ creates, so it would be one value for all


def changed_constant(self: Any, t: Any) -> Any:
    self.limit = t["n"]  # HERE self.limit is no dict that __init__ creates, so it would be one value for all keys


def passed(self: Any, t: Any) -> Any:
    helped(self)  # HERE self is passed on, and what happens to it cannot be seen


def mutable_global(self: Any, t: Any) -> Any:
    self.n[t["symbol"]] = 1
    SHARED.append(t["n"])  # HERE the global SHARED is list, which may change, and is another on every machine


def declared_global(self: Any, t: Any) -> Any:
    global LIMIT  # HERE a variable outside the class is one for all keys
    LIMIT = 4


def alias(self: Any, t: Any) -> Any:
    inside: dict[int, int] = {}
    self.maps[t["symbol"]] = inside  # HERE what self.maps keeps is a copy of inside, and later changes
    inside[1] = 2


def rebound(self: Any, t: Any) -> Any:  # HERE self and t must stay what they are
    t = dict(t)
    self.n[t["symbol"]] = 1


def unused(self: Any, t: Any) -> Any:  # HERE it uses none of its dicts, so there is no key
    return {"symbol": t["symbol"]}


def extra(self: Any, t: Any, more: Any) -> Any:  # HERE write it as def process(self, t)
    self.n[t["symbol"]] = 1


def helper_touches(self: Any, t: Any) -> Any:
    self.n[t["symbol"]] = 1
    self.helper()


BODY = """
class Refused:
    def __init__(self):
        self.n: dict[str, int] = {}
        self.last: dict[str, float] = {}
        self.maps: dict[str, dict[int, int]] = {}
        self.limit = 5

    def helper(self):
        return self.n  # HELPER
"""
METHODS = [
    other_index,
    computed_index,
    changed_index,
    all_items,
    all_keys,
    size,
    whole,
    emptied,
    unkeyed,
    changed_constant,
    passed,
    mutable_global,
    declared_global,
    alias,
    rebound,
    unused,
    extra,
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_what_prevents_it_is_refused_with_its_line(method: Any, tmp_path: Any) -> None:
    source = inspect.getsource(method).replace(f"def {method.__name__}", "def process")
    _refused(tmp_path, BODY + "".join(f"    {line}\n" for line in source.splitlines()))


def test_other_methods_touch_no_dict(tmp_path: Any) -> None:
    body = BODY.replace("HELPER", "HERE only process may use self.n; move this there, and pass the value on")
    source = inspect.getsource(helper_touches).replace("helper_touches", "process")
    _refused(tmp_path, body + "".join(f"    {line}\n" for line in source.splitlines()))


INITS = {
    "nothing kept": ("class Refused:  # HERE it keeps no dict\n    def process(self, t):\n        return None\n"),
    "no types": "self.n = {}  # HERE self.n has no types; annotate it, as in self.n: dict[str, float] = {}, or declare",
    "a list for all": "self.n = []  # HERE self.n is neither an empty dict nor a constant",
    "not empty": "self.n: dict[str, int] = {'a': 1}  # HERE self.n is neither an empty dict nor a constant",
    "computed": "self.n = open('x')  # HERE self.n is neither an empty dict nor a constant",
    "a statement": "print('x')  # HERE __init__ may create empty dicts and constants",
    "a wide type": "self.n: dict[str, object] = {}  # HERE self.n: object is no type that is taken from an annotation",
    "no zone": "self.n: dict[str, datetime] = {}  # HERE a datetime has a zone or none, so it is declared",
    "too deep": "self.n: dict[str, dict[str, set[int]]] = {}  # HERE self.n holds dict[str, set[int]]; a dict holds a value",
    "a default": "self.n: dict[str, int] = defaultdict(lambda: 3)  # HERE the values of a defaultdict begin with one of",
}


@pytest.mark.parametrize("case", INITS)
def test_init_creates_dicts_and_constants(case: str, tmp_path: Any) -> None:
    text = INITS[case]
    if not text.startswith("class"):
        text = (
            "from collections import defaultdict\nfrom datetime import datetime\n"
            f"class Refused:\n    def __init__(self):\n        {text}\n"
            "    def process(self, t):\n        self.n[t['symbol']] = 1\n"
        )
    _refused(tmp_path, text)


def _refused(tmp_path: Any, text: str) -> None:
    """The class of a text is refused, naming the line that says HERE, with what stands behind that."""
    file = tmp_path / "written.py"
    file.write_text(text)
    names: dict[str, Any] = {"__name__": "written", "__file__": str(file)}
    names |= {"SHARED": SHARED, "LIMIT": LIMIT, "helped": helped, "Any": Any}
    exec(compile(text, str(file), "exec"), names)
    line = next(number for number, each in enumerate(text.splitlines(), start=1) if "HERE " in each)
    told = text.splitlines()[line - 1].partition("# HERE ")[2]
    with pytest.raises(tg.QueryError) as raised:
        tg.operator(names["Refused"], returns=RETURNS)
    message = str(raised.value)
    assert re.match(rf"operator 'Refused': .*written\.py, line {line}: `", message), message
    assert told in message.partition("`: ")[2], message
