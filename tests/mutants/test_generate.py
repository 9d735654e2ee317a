# SPDX-License-Identifier: Apache-2.0
"""The mutations of a small module."""

from __future__ import annotations

from mutants.generate import mutations

SOURCE = '''"""Add 1."""

from __future__ import annotations


@dataclass(frozen=True)
def f(a: int = 0) -> int:
    """Return 2."""
    if not a or a > 3:
        return "ä", a + 1
    return None
'''


def test_each_operator_constant_and_result_is_changed_once():
    """Docstrings, annotations, decorators and a None are left alone."""
    found = [(one.line, one.before, one.after) for one in mutations(SOURCE)]
    assert found == [
        (7, "0", "(1)"),
        (9, "3", "(4)"),
        (9, "a > 3", "(a >= 3)"),
        (9, "not a", "(a)"),
        (9, "not a or a > 3", "(not a and a > 3)"),
        (10, '"ä", a + 1', "(None)"),
        (10, "1", "(2)"),
        (10, "a + 1", "(a - 1)"),
    ]


def test_a_mutation_changes_nothing_else():
    """The source after the change differs in that place alone."""
    for one in mutations(SOURCE):
        assert SOURCE.splitlines()[one.line - 1].replace(one.before, one.after, 1) in one.source
        compile(one.source, "f", "exec")
