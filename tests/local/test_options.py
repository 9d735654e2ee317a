# SPDX-License-Identifier: Apache-2.0
"""Flags of `muster local` become checked values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from muster.local import handle, options


def test_a_shape_names_resources_and_gets_what_every_node_has() -> None:
    """Pods and ephemeral storage need not be said."""
    shape = options.parse_shape("cpu=8,memory=32Gi,nvidia.com/gpu=4")
    assert shape == {
        "cpu": "8",
        "memory": "32Gi",
        "nvidia.com/gpu": "4",
        "pods": "110",
        "ephemeral-storage": "100Gi",
    }


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("cpu=8", "a node needs memory"),
        ("memory=8Gi", "a node needs cpu"),
        ("cpu=8,memory=lots", "such as cpu=8"),
        ("cpu,memory=1Gi", "such as cpu=8"),
        ("=8,memory=1Gi", "such as cpu=8"),
    ],
)
def test_a_shape_that_cannot_be_meant_is_refused_with_advice(text: str, advice: str) -> None:
    """The message says what to write instead."""
    with pytest.raises(options.OptionError, match=advice):
        options.parse_shape(text)


def test_labels_and_taints_are_told_apart_by_the_effect() -> None:
    """A label's value can hold no colon, so a colon means a taint."""
    labels, taints = options.parse_labels(
        ["rack=7", "gpu.example.com/kind=a100", "empty=", "dedicated=ml:NoSchedule"]
    )
    assert labels == {"rack": "7", "gpu.example.com/kind": "a100", "empty": ""}
    assert taints == ({"key": "dedicated", "value": "ml", "effect": "NoSchedule"},)


@pytest.mark.parametrize("text", ["rack", "rack=a b", "rack=7:Sometimes", "-x=1", "=1"])
def test_what_is_neither_label_nor_taint_is_refused(text: str) -> None:
    """The API server would refuse it much later."""
    with pytest.raises(options.OptionError, match="no label KEY=VALUE"):
        options.parse_labels([text])


@pytest.mark.parametrize(
    ("parse", "error", "texts"),
    [
        # A cluster's name becomes a path, a version a part of a URL and a path.
        (options.parse_name, "no cluster name", ("", "-a", "A", "a/b", "..", "a" * 41)),
        (options.parse_version, "no Kubernetes version", ("1.36", "latest", "1.36.3/../x")),
        (options.parse_run_seconds, "no number of seconds", ("", "-2", "5s", "soon")),
        # With more nodes, some would share addresses.
        (options.parse_count, "no number of nodes", ("-1", "x", "30001", "")),
    ],
)
def test_option_with_an_invalid_value_is_refused(
    parse: Callable[[str], object], error: str, texts: Sequence[str]
) -> None:
    """The error names what the value is not."""
    for text in texts:
        with pytest.raises(options.OptionError, match=error):
            parse(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("5", "5"), ("0.5", "0.5"), ("-1", "forever"), ("forever", "forever")]
)
def test_run_seconds_are_a_number_or_forever(text: str, seconds: str) -> None:
    """-1 is another word for forever."""
    assert options.parse_run_seconds(text) == seconds


def test_options_survive_being_recorded(tmp_path: Path) -> None:
    """What was asked for is read back the same from JSON."""
    asked = options.Options(
        name="x",
        labels={"a": "b"},
        taints=({"key": "k", "value": "v", "effect": "NoExecute"},),
        kubeconfig=Path("/tmp/k"),
        kwok=False,
    )
    made = handle.Cluster(tmp_path, asked, 1, {"etcd": ["/bin/etcd"]})
    handle.record(made)
    assert handle.recorded(made.files) == made


def test_a_cluster_that_was_there_gets_no_nodes_but_those_asked_for() -> None:
    """It is somebody's; one of its own has four."""
    assert options.Options().count == options.DEFAULT_NODES
    assert options.Options(mark="x-123abc").count == 0
    assert options.Options(mark="x-123abc", nodes=2).count == 2
