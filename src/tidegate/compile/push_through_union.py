"""Pass: the steps between a union and the stateful operator it feeds move into the union's branches."""

from __future__ import annotations

from dataclasses import replace

from tidegate.query.nodes import Filter, MapBatches, Node, Select, Union, WithColumns, is_stateful, rewrite, with_inputs


def push_through_union(query: Node) -> Node:
    """Make the input of every stateful operator one chain of stateless steps, or one union of such chains.

    ::

        before   a ──┐                               after   a | f | m ──┐
                     ├ union | f ──┐                         b | f | m ──┼ union | aggregate | g
                 b ──┘             ├ union | m | aggregate | g           c | m ──┘
                 c ────────────────┘

    On Spark, control rows and the watermark enter each branch behind its native steps, so nothing may stand between
    the union and the aggregate. A stateless step works on one tuple at a time, so it may as well run before tuples
    meet. After the last stateful operator unions stay where they are.

    >>> import narwhals as nw, pyarrow as pa
    >>> from tidegate.compile.show_query import show_query
    >>> from tidegate.query.aggregates import count
    >>> from tidegate.query.builder import Builder, source
    >>> a, b = (Builder(source(name, {"ts": pa.timestamp("us"), "k": pa.int64()}, time="ts")) for name in "ab")
    >>> both = a.union(b, name="both").filter(nw.col("k") > 1, name="f")
    >>> query = both.key_by("k").window("1 minute").aggregate(n=count(), name="g")
    >>> print(show_query(push_through_union(query.node)))
    1  a     stream     ts: timestamp[us], k: int64; time ts, in order
    2  f     filter     k > 1
    3  b     stream     ts: timestamp[us], k: int64; time ts, in order
    4  f     filter     k > 1
    5  both  union      reads 2, 4
    6  g     aggregate  by k, window 1 minute every 1 minute: n = count()
    """
    return rewrite(query, _push)


def _push(node: Node) -> Node:
    return with_inputs(node, tuple(map(_union_last, node.inputs))) if is_stateful(node) else node


def _union_last(node: Node) -> Node:
    """The same stream with its union, if it has one, as the last step."""
    match node:
        case Union():
            return _flat(node)
        case WithColumns() | Select() | Filter() | MapBatches():
            below = _union_last(node.input)
            if not isinstance(below, Union):
                return with_inputs(node, (below,))
            branches = tuple(with_inputs(node, (branch,)) for branch in below.inputs)
            return Union(below.name, branches, node.schema, node.time)
        case _:
            return node


def _flat(union: Union) -> Node:
    branches: list[Node] = []
    for upstream in union.inputs:
        below = _union_last(upstream)
        branches += below.inputs if isinstance(below, Union) else [below]
    if len(branches) == 1:
        return branches[0]
    same = len(branches) == len(union.inputs) and all(a is b for a, b in zip(branches, union.inputs, strict=True))
    return union if same else replace(union, inputs=tuple(branches))
