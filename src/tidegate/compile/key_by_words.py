"""Pass: keys that are the words of a text are taken from the text, not from a list of words."""

from __future__ import annotations

from dataclasses import replace

import narwhals as nw
import pyarrow as pa

from tidegate.compile.plan import Plan
from tidegate.compile.read_used_columns import read_by
from tidegate.query import expressions
from tidegate.query.keys import Columns, Each, Words
from tidegate.query.nodes import Node, WindowAggregate, WithColumns, rewrite


def key_by_words(plan: Plan) -> Plan:
    """Let an aggregate cut a text itself where only its keys need the words.

    ::

        before   tweets | with words = split(text, ' ') | count by each(words)
        after    tweets | count by words(text)

    A list of words is written out only to be read once, when each word gets its number; one loop over the text does both.
    That loop knows separators of one ASCII character. The reference interpreter runs queries as they were written.

    >>> from tidegate.query.aggregates import count
    >>> from tidegate.query.builder import Builder, source
    >>> from tidegate.query.keys import each
    >>> tweets = Builder(source("tweets", {"ts": pa.timestamp("us"), "text": pa.string()}, time="ts"))
    >>> split = tweets.with_columns(words=nw.col("text").str.split(" "))
    >>> query = split.key_by(each("words", name="word")).window("1 minute").aggregate(n=count())
    >>> found = key_by_words(Plan(query.node, "local")).query
    >>> str(found.keys), found.input.name
    ('words(text)', 'tweets')
    """
    return plan if plan.runtime == "reference" else replace(plan, query=rewrite(plan.query, _from_text))


def _from_text(node: Node) -> Node:
    match node:
        case WindowAggregate(keys=Each() as keys, input=WithColumns() as made):
            listed = [expr for expr in made.exprs if _made((expr,), made) == (keys.column,)]
            words = _cut(listed[0], keys, made.input.schema) if listed else None
        case _:
            return node
    if words is None or keys.column in read_by(replace(node, keys=Columns(()))):
        return node
    rest = tuple(expr for expr in made.exprs if expr is not listed[0])
    return node if words.column in _made(rest, made) else replace(node, keys=words, inputs=(_only(made, rest),))


def _cut(expr: nw.Expr, keys: Each, schema: pa.Schema) -> Words | None:
    """The words that an expression cuts from a text to be the list of keys; None if it does anything else."""
    match [(call.name, call.options) for call in expressions.calls_of(expr) if call.name != "alias"]:
        case [("col", {"names": [text]}), ("str.split", {"by": str(separator)})]:
            simple = len(separator) == 1 and separator.isascii() and schema.field(text).type == pa.string()
            return Words(text, separator, keys.name, keys.distinct) if simple else None
        case _:
            return None


def _only(made: WithColumns, exprs: tuple[nw.Expr, ...]) -> Node:
    """The same step with some of its expressions; its input if there are none."""
    if not exprs:
        return made.input
    schema = expressions.derive(made.name, made.input.schema, expressions.with_columns, exprs)
    return replace(made, exprs=exprs, schema=schema)


def _made(exprs: tuple[nw.Expr, ...], step: WithColumns) -> tuple[str, ...]:
    return expressions.columns_made(exprs, step.input.schema, step.name) if exprs else ()
