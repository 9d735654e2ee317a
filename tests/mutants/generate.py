# SPDX-License-Identifier: Apache-2.0
"""Mutations of a Python module: one operator, constant, or return value changed at a time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

PAIRS: tuple[tuple[type[ast.AST], type[ast.AST]], ...] = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn)),
    *((ast.Is, ast.IsNot), (ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv)),
    (ast.BitAnd, ast.BitOr),
)
SWAPPED = dict(PAIRS) | {other: one for one, other in PAIRS}
"""Operator -> the one that replaces it."""
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
    made: Any = copy(node)
    match node:
        case ast.Compare(ops=[op, *rest]):
            made.ops = [SWAPPED[type(op)](), *rest]
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in SWAPPED:
            made.op = SWAPPED[type(op)]()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            made = operand
        case ast.Constant(value=bool(value)):
            made.value = not value
        case ast.Constant(value=int() | float() as value):
            made.value = value + 1
        case _:
            return
    yield made
