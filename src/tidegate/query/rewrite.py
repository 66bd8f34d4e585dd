"""Rebuilding a query with other nodes in it; what rewriting passes have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidegate.query.nodes import Join, KeyedApply, Node, Source, Union, walk


def rewrite(query: Node, rule: Callable[[Node], Node]) -> Node:
    """Apply a rule to every node, inputs first; a rule returns the node it got where it has nothing to change.

    A node that several others read is rewritten once and stays shared, and sources are never copied: a runtime tells
    streams apart by the identity of their source.
    """
    done: dict[int, Node] = {}
    for node in walk(query):
        done[id(node)] = rule(with_inputs(node, tuple(done[id(upstream)] for upstream in node.inputs)))
    return done[id(query)]


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """A node that reads other inputs of the same schemas; the same node if they are the ones it has."""
    if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
        return node
    match node:
        case Source():
            return node
        case Union() | KeyedApply():
            return replace(node, inputs=inputs)
        case Join():
            return replace(node, left=inputs[0], right=inputs[1])
        case _:
            return replace(node, input=inputs[0])
