# SPDX-License-Identifier: Apache-2.0
"""Quantities: every text Kubernetes accepts, as integers of known units."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1", 1),
        (1, 1),
        (0.5, Fraction(1, 2)),
        ("+2", 2),
        ("-2", -2),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("500m", Fraction(1, 2)),
        ("3u", Fraction(3, 10**6)),
        ("3n", Fraction(3, 10**9)),
        ("2k", 2000),
        ("2M", 2 * 10**6),
        ("2G", 2 * 10**9),
        ("2T", 2 * 10**12),
        ("2P", 2 * 10**15),
        ("2E", 2 * 10**18),
        ("1Ki", 1024),
        ("1.5Gi", 3 * 2**29),
        ("1Mi", 2**20),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("1Ei", 2**60),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12E-1", Fraction(6, 5)),
        ("1e+2", 100),
    ],
)
def test_every_form_is_read_exactly(text: str | float, value: Fraction | int) -> None:
    """Suffixes and exponents, with and without fractions and signs."""
    assert quantity.parse(text) == value


@pytest.mark.parametrize(
    "text", ["", ".", "1GB", "1 Gi", "Gi", "1ki", "1mi", "--1", "1e", "1ee3", "0x1", "1\n", True]
)
def test_what_is_no_quantity_is_named(text: str) -> None:
    """The error repeats the text and shows what to write."""
    with pytest.raises(ValueError, match="is not a quantity; write for example") as error:
        quantity.parse(text)
    assert f'"{text}"' in str(error.value)


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "1", 1000),
        ("cpu", "100m", 100),
        ("cpu", "100u", 1),
        ("memory", "16Gi", 16 * 2**30),
        ("memory", "1500m", 2),
        ("ephemeral-storage", "1k", 1000),
        ("hugepages-2Mi", "4Mi", 4 * 2**20),
        ("requests.memory", "1Ki", 1024),
        ("requests.cpu", "1", 1000),
        ("nvidia.com/gpu", 1, 1000),
        ("pods", "110", 110_000),
        ("memory", "100E", quantity.LIMIT),
    ],
)
def test_units_depend_on_the_resource(resource: str, text: str | float, amount: int) -> None:
    """Milli-CPU, bytes, thousandths; rounded up, and never beyond the limit."""
    assert quantity.units(resource, text) == amount


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1e1002", quantity.LIMIT),
        ("1000e999", quantity.LIMIT),
        ("1e-1002", 1),
        ("0e9999", 0),
        (f"1e{'9' * 5000}", quantity.LIMIT),
        (f"1e-{'9' * 5000}", 1),
        (f"2e{'0' * 5000}3", 2000),
        ("9" * 5000, quantity.LIMIT),
        (f"{'0' * 5000}7", 7),
        (f"7.{'0' * 5000}", 7),
        (f"7.{'0' * 5000}1", 8),
        (f"{'9' * 5000}e-4999", 10),
        (f"0.{'0' * 5000}1e5001", 1),
        ("8Pi", 2**53),
        ("16Ei", quantity.LIMIT),
        (1e300, quantity.LIMIT),
        (10**21, quantity.LIMIT),
    ],
)
def test_no_text_is_too_long_or_its_number_too_large(text: str | float, amount: int) -> None:
    """They are stored, so they are read: what goes beyond the limit is as much as it gets."""
    assert quantity.units("memory", text) == amount


@pytest.mark.parametrize(
    "text", ["-1", "-1e1002", "-1e-1002", f"-{'9' * 5000}", f"-1e{'9' * 5000}"]
)
def test_less_than_nothing_is_refused_at_any_length(text: str) -> None:
    """With a sentence that quotes no more of it than anybody wants to read."""
    with pytest.raises(ValueError, match="is negative") as error:
        quantity.units("cpu", text)
    assert len(str(error.value)) < 120


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 0, "0"),
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("nvidia.com/gpu", 4000, "4"),
        ("memory", 0, "0"),
        ("memory", 512, "512"),
        ("memory", 16 * 2**30, "16Gi"),
        ("memory", 3 * 2**29, "1536Mi"),
        ("memory", 2 * 10**9, "2G"),
    ],
)
def test_formatting_is_the_shortest_exact_text(resource: str, amount: int, text: str) -> None:
    """People read what they would have written."""
    assert quantity.format(resource, amount) == text


@given(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, quantity.LIMIT))
def test_what_is_formatted_reads_back_the_same(resource: str, amount: int) -> None:
    """Formatting loses nothing."""
    assert quantity.units(resource, quantity.format(resource, amount)) == amount


def test_nothing_is_kept_of_a_long_text() -> None:
    """It is anybody's, and thousands of amounts are remembered."""
    tracemalloc.start()
    try:
        for number in range(50):
            quantity.units("cpu", f"{number}" + "0" * 20_000)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 50 * 1_000
