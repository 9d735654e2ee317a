# SPDX-License-Identifier: Apache-2.0
"""Mutations of a Python module: one operator, constant, or return value changed at a time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
NOT_RUN = {"annotation", "returns", "decorator_list", "bases", "type_params"}
"""Fields of a node that hold types, or options of a decorator."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A changed expression at a place in the source."""

    line: int
    before: str
    after: str
    source: str
    """The whole module with the change."""


def mutations(source: str) -> list[Mutation]:
    """Return every mutation of the module, in the order of its lines."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    raw, found = source.encode(), []
    for node, changed in _changes(ast.parse(source)):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        before, after = raw[start:end].decode(), f"({ast.unparse(changed)})"
        made = raw[:start] + after.encode() + raw[end:]
        found.append(Mutation(node.lineno, before, after, made.decode()))
    return sorted(found, key=lambda one: (one.line, one.before, one.after))


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each expression below the node with what replaces it."""
    if isinstance(node, ast.expr):
        for changed in _changed(node):
            yield node, changed
    if isinstance(node, ast.Return) and node.value and ast.unparse(node.value) != "None":
        yield node.value, ast.Constant(None)
    if isinstance(node, ast.JoinedStr):  # Python 3.11 has no usable positions inside.
        return
    for field, value in ast.iter_fields(node):
        if field not in NOT_RUN:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _changes(child)


def _changed(node: ast.expr) -> Iterator[ast.expr]:
    made = copy(node)
    match node, made:
        case ast.Compare(ops=[op, *rest]), ast.Compare():
            made.ops = [COMPARISONS[type(op)](), *rest]
            yield made
        case ast.BoolOp(op=op), ast.BoolOp():
            made.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield made
        case ast.BinOp(op=op), ast.BinOp() if type(op) in ARITHMETIC:
            made.op = ARITHMETIC[type(op)]()
            yield made
        case ast.UnaryOp(op=ast.Not(), operand=operand), _:
            yield operand
        case ast.Constant(value=bool(value)), ast.Constant():
            made.value = not value
            yield made
        case ast.Constant(value=int() | float() as value), ast.Constant():
            made.value = value + 1
            yield made
