# SPDX-License-Identifier: Apache-2.0
"""Tables of commands."""

from muster.commands.tables import Column, table


def test_control_characters_of_a_cell_are_not_printed():
    """A cell cannot move the cursor of the terminal or add a line."""
    columns = [Column("NAME", str), Column("MORE", str.upper, wide=True)]
    assert table(columns, ["\x1b[2Jgone\nnext"]) == "NAME\n [2Jgone next\n"
