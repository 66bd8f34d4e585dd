"""Generated functions of one tuple, as text: branches, arithmetic, comparisons, nulls, rows and retiring.

Numbers are drawn so that sums and products leave 64 bits now and then, divisors are zero, floats are NaN, infinite and
beyond 2**53, and everything may be None. Some functions hold what is not compiled.
"""

from __future__ import annotations

import linecache
import random
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.keyed_apply_cases import KeyedApplyCase

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("k", pa.string()),
        ("n", pa.int64()),
        ("m", pa.int32()),
        ("x", pa.float64()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("at", pa.timestamp("us")),
    ]
)
STATE = {
    "a": pa.int64(),
    "f": pa.float64(),
    "c": pa.bool_(),
    "w": pa.string(),
    "h": pa.int16(),
    "t": pa.timestamp("us"),
}
INITIAL = {"a": 0, "f": 0.0, "c": False, "h": 0}
RETURNS = {"what": pa.string(), "i": pa.int64(), "f": pa.float64(), "c": pa.bool_(), "at": pa.timestamp("us")}
_NUMBERS = [0, 1, -1, 2, 3, 7, 1000, 2**31, -(2**31), 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63)]
_FLOATS = [0.0, -0.0, 1.0, -2.5, 0.1, 1e308, -1e308, float("inf"), float("-inf"), float("nan"), 2.0**53, 9.3e18, 3.0]
_TEXTS = ["", "a", "b", "long"]
_files = count()


@dataclass(frozen=True)
class GeneratedFunctions:
    """Two functions with their text."""

    update: Any
    output: Any
    text: str


class FunctionWriter:
    """Writes one function."""

    def __init__(self, rng: random.Random, calm: bool, unbounded: bool, text_key: bool) -> None:
        self.rng, self.calm, self.unbounded = rng, calm, unbounded
        self.key = "window.key" if text_key else '"k"'
        self.names: dict[str, list[str]] = {"int": [], "float": [], "text": []}
        self.tuple = True

    def pick(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def whole(self, depth: int) -> str:
        """An expression that is an int."""
        rng = self.rng
        if depth == 0:
            leaves = ['s["a"]', '(s["h"] or 1)', str(rng.choice(_NUMBERS[:7])), *self.names["int"]]
            if self.tuple:
                leaves += ['t["m"]' if not self.calm else '(t["m"] or 3)', '(t["n"] or 0)', "t.time", "LIMIT"]
                leaves += [] if self.calm else ['t["n"]', str(rng.choice(_NUMBERS))]
            return str(rng.choice(leaves))
        one, two = self.whole(depth - 1), self.whole(depth - 1)
        return str(
            self.pick(
                f"({one} + {two})",
                f"({one} - {two})",
                f"({one} * {two})",
                f"({one} % {two})" if not self.calm else f"({one} % 1000)",
                f"({one} // {two})" if not self.calm else f"({one} // 7)",
                f"min({one}, {two})",
                f"max({one}, {two}, 5)",
                f"abs({one})",
                f"(-{one})",
                f"({one} & 255 | 1)",
                f"({one} if {self.truth(depth - 1)} else {two})",
                f"(({one}) or ({two}))",
                f"(({one}) > 3) + 1",
            )
        )

    def real(self, depth: int) -> str:
        """An expression that is a float, or now and then an int."""
        if depth == 0:
            leaves = ['s["f"]', repr(self.pick(0.0, 1.5, -2.0, 1e300)), *self.names["float"]]
            leaves += (['(t["x"] or 0.5)'] if self.calm else ['t["x"]', '(t["x"] or 0)']) if self.tuple else []
            return str(self.rng.choice(leaves))
        one, two, whole = self.real(depth - 1), self.real(depth - 1), self.whole(depth - 1)
        return str(
            self.pick(
                f"({one} + {two})",
                f"({one} * {whole})",
                f"({one} - {whole})",
                f"({one} / {two})" if not self.calm else f"({one} / 3)",
                f"({whole} / 7)",
                f"max({one}, {two})",
                f"min({one}, {whole})",
                f"abs({one})",
                f"({one} if {self.truth(depth - 1)} else {whole})",
                f"float({whole})",
            )
        )

    def truth(self, depth: int) -> str:
        """A condition."""
        if depth == 0:
            leaves = ['s["c"]', 's["w"] is None', 's["w"] == "a"', 's["t"] is not None']
            if self.tuple:
                leaves += [
                    't["b"]',
                    't["s"] is not None',
                    't["s"] == s["w"]',
                    't["s"] != "b"',
                    't["n"] is None',
                    'not t["s"]',
                ]
                leaves += [
                    't["s"] in ("a", "long")',
                    't["b"] is None or t["b"]',
                    't["at"] == s["t"]',
                    't["n"] == s["a"]',
                ]
                leaves += ['s["t"] is None or (t["at"] is not None and t["at"] > s["t"])', f't["k"] == {self.key}']
                leaves += ['t["x"] == s["f"]', 't["n"] == t["x"]']
            return str(self.rng.choice(leaves))
        one, two = self.truth(depth - 1), self.truth(depth - 1)
        order = self.pick("<", "<=", ">", ">=", "==", "!=")
        return str(
            self.pick(
                f"({one} and {two})",
                f"({one} or {two})",
                f"(not {one})",
                f"({self.whole(depth - 1)} {order} {self.whole(depth - 1)})",
                f"({self.real(depth - 1)} {order} {self.real(depth - 1)})",
                f"({self.whole(depth - 1)} {order} {self.real(depth - 1)})",
                f"(0 < {self.whole(depth - 1)} <= 100)",
            )
        )

    def text(self) -> str:
        leaves = ['"a"', '"new"', 's["w"]', "None", *self.names["text"]]
        leaves += ['t["s"]', 't["k"]'] if self.tuple else []
        return f"({self.rng.choice(leaves)} if {self.truth(1)} else {self.rng.choice(leaves)})"

    def moment(self) -> str:
        leaves = ['s["t"]', "None", *(['t["at"]', "t.time"] if self.tuple else [])]
        return str(self.rng.choice(leaves))

    def bounded(self, depth: int) -> str:
        """A whole number that stays small, as otherwise most runs would end at once."""
        return f"({self.whole(depth)}) % 1000003" if self.calm or self.rng.random() < 0.7 else self.whole(depth)

    def row(self) -> str:
        parts = [self.pick('"u"', 't["s"]', self.key) if self.tuple else self.pick('"o"', self.key, 's["w"]')]
        parts += [self.bounded(1), self.real(1), f"bool({self.truth(1)})", self.moment()]
        names = [f'"{name}": {part}' for name, part in zip(RETURNS, parts, strict=True)]
        return "{" + ", ".join(names) + "}"

    def state(self) -> str:
        values = {
            "a": self.bounded(self.pick(1, 2)),
            "f": self.real(1),
            "c": f"bool({self.truth(1)})",
            "w": self.text(),
            "h": f"({self.whole(1)}) % 30000",
            "t": self.moment(),
        }
        chosen = [name for name in values if self.rng.random() < 0.6]
        if len(chosen) == len(values):
            return "{" + ", ".join(f'"{name}": {values[name]}' for name in chosen) + "}"
        return "{**s, " + ", ".join(f'"{name}": {values[name]}' for name in chosen) + "}"

    def statements(self, depth: int, indent: str) -> list[str]:
        lines = []
        for _ in range(self.rng.randint(1, 2)):
            kind = self.pick("int", "float", "text", "if", "if", "return")
            if kind == "if" and depth:
                lines += [f"{indent}if {self.truth(self.pick(1, 2))}:"]
                before = {name: list(known) for name, known in self.names.items()}
                lines += self.statements(depth - 1, indent + "    ")
                self.names = {name: list(known) for name, known in before.items()}
                if self.rng.random() < 0.5:
                    lines += [f"{indent}{self.pick('else:', f'elif {self.truth(1)}:')}"]
                    lines += self.statements(depth - 1, indent + "    ")
                    self.names = before
            elif kind == "return" and depth < 2:
                lines += [f"{indent}return {self.result()}"]
                break
            elif kind in ("int", "if", "return"):
                name = self.pick("one", "two")
                again = name in self.names["int"]
                lines += [f"{indent}{name} {self.pick('+=', '-=') if again else '='} {self.bounded(2)}"]
                self.names["int"] = [*{*self.names["int"], name}]
            elif kind == "float":
                lines += [f"{indent}real = {self.real(2)}"]
                self.names["float"] = ["real"]
            else:
                lines += [f"{indent}text = {self.text()}"]
                self.names["text"] = ["text"]
        return lines

    def result(self) -> str:
        rows = self.pick("", f", rows={self.row()}", f", rows=[{self.row()}, {self.row()}]", ", rows=rows", "")
        retire = f", retire=bool({self.truth(1)})" if self.unbounded and self.rng.random() < 0.4 else ""
        return str(
            self.pick("None", f"tg.updated({self.state()}{rows}{retire})", f"tg.updated({self.state()}{rows}{retire})")
        )

    def update(self) -> list[str]:
        lines = ["def update(window, t):", "    s = window.state", "    rows = []"]
        if self.rng.random() < 0.4:
            lines += [f"    if {self.truth(1)}:", f"        rows.append({self.row()})"]
        lines += self.statements(2, "    ")
        return [*lines, f"    return {self.result()}"]

    def output(self) -> list[str]:
        self.tuple, self.names = False, {"int": [], "float": [], "text": []}
        lines = ["def output(window):", "    s = window.state"]
        if self.rng.random() < 0.5:
            return [*lines, f"    yield {self.row()}", f"    if {self.truth(1)}:", f"        yield {self.row()}"]
        return [*lines, f"    return {self.row()} if {self.truth(1)} else {self.pick('None', '[]', self.row())}"]


def generated_functions(seed: int, unbounded: bool, text_key: bool) -> GeneratedFunctions:
    """Two functions that stand in a file of their own, as far as Python knows."""
    rng = random.Random(seed)
    writer = FunctionWriter(rng, rng.random() < 0.6, unbounded, text_key)
    text = "\n".join([*writer.update(), "", "", *writer.output()]) + "\n"
    file = f"<generated {next(_files)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    scope: dict[str, Any] = {"tg": tg, "LIMIT": rng.choice(_NUMBERS[:9])}
    exec(compile(text, file, "exec", dont_inherit=True), scope)
    return GeneratedFunctions(scope["update"], scope["output"], text)


def generated_tuples(rng: random.Random, rows: int, start: int) -> pa.Table:
    """Tuples in time order, with ties."""
    times = sorted(start + rng.randrange(rows * 40) for _ in range(rows))
    rare = rng.choice([0.0, 0.02, 0.3])

    def column(often: list[Any], seldom: list[Any]) -> list[Any]:
        return [rng.choice(seldom if rng.random() < rare else often) for _ in range(rows)]

    columns = [
        times,
        column(["p", "q", "r"], ["p", None]),
        column([1, 5, -3, 40], [*_NUMBERS, None]),
        column([1, 2, -7], [0, None, 2**31 - 1]),
        column([0.5, 2.25, -1.0], [*_FLOATS, None]),
        column([True, False], [None]),
        column(["a", "b", "c"], [*_TEXTS, None]),
        column([start, start + 5], [None, -5, start + 9]),
    ]
    return pa.table([pa.array(values, kind) for values, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def compiled_query(
    functions: GeneratedFunctions, window: str | None, every: str | None, keys: tuple[str, ...]
) -> tg.Stream:
    """A query of generated functions."""
    keyed = tg.stream(SCHEMA, time="ts", name="s0").key_by(*keys)
    declared: dict[str, Any] = {"state": STATE, "initial": INITIAL, "returns": RETURNS, "name": "applied"}
    if window is None:
        return keyed.unbounded().apply(update=functions.update, **declared)
    return keyed.window(window, every=every).apply(update=functions.update, output=functions.output, **declared)


def sessions(window: Any, t: Any) -> Any:
    """Rows of a key until a gap of 50 µs; a key with text 'c' is forgotten."""
    s = window.state
    if s["t"] is None or t.time - s["a"] > 50:
        rows = None if s["t"] is None else {"what": s["w"], "i": s["h"], "f": s["f"], "c": s["c"], "at": s["t"]}
        return tg.updated({"a": t.time, "f": 0.0, "c": True, "w": t["s"], "h": 1, "t": t.time}, rows=rows)
    grown = {**s, "a": t.time, "h": s["h"] + 1, "f": s["f"] + (t["x"] or 0)}
    return tg.updated(grown, retire=t["s"] == "c" and s["h"] > 3)


def weighted(window: Any, t: Any) -> Any:
    """A sum that leaves 64 bits now and then, which Python computes, and the last text that was there."""
    s = window.state
    worth = (t["n"] or 0) * (t["m"] or 1)
    text = s["w"] if t["s"] is None else t["s"]
    return tg.updated(
        {**s, "a": (s["a"] + worth) % 1_000_003, "f": max(s["f"], t["x"] or 0.0), "w": text, "t": t["at"]}
    )


def told(window: Any) -> Any:
    """The state of a window, twice if its sum is even."""
    s = window.state
    row = {"what": s["w"], "i": s["a"] + window.start, "f": s["f"] / 3, "c": s["c"], "at": window.end}
    return [row] if s["a"] % 2 else [{**row, "c": None}, {**row, "what": None}]


_WRITTEN = {
    None: GeneratedFunctions(sessions, None, "sessions"),
    "300us": GeneratedFunctions(weighted, told, "weighted"),
    "1ms": GeneratedFunctions(weighted, told, "weighted"),
}


@st.composite
def compiled_apply_cases(draw: st.DrawFn) -> KeyedApplyCase:
    """A query with functions that are compiled; its data, and how they are cut. Few functions: compiling takes long."""
    window = draw(st.sampled_from([None, "300us", "1ms"]))
    keys = draw(st.sampled_from([("k",), ("m", "k")]))
    query = compiled_query(_WRITTEN[window], window, draw(st.sampled_from([window, "100us"])), keys)
    rng, base = random.Random(draw(st.integers(0, 1_000))), 1_700_000_000_000_000
    batches: list[dict[str, list[pa.Table]]] = []
    for _ in range(draw(st.integers(1, 4))):
        table = generated_tuples(rng, draw(st.sampled_from([0, 5, 40])), base)
        cut = draw(st.integers(0, table.num_rows))
        batches.append({"s0": [table.slice(0, cut), table.slice(cut)]})
        base += draw(st.sampled_from([200, 1_600, 5_000]))
    return KeyedApplyCase(query, batches, f"{_WRITTEN[window].text}, {window}, {keys}")
