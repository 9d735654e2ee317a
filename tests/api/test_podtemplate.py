# SPDX-License-Identifier: Apache-2.0
"""The effective request of a pod."""

from __future__ import annotations

from typing import Any

import pytest

from muster.api import podtemplate


def container(
    requests: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Return a container that asks for this."""
    return {"name": "c", "resources": {"requests": requests, "limits": limits}, **more}


def test_containers_add_up() -> None:
    """Everything that runs side by side is needed at once; zero and absent are the same."""
    spec = {"containers": [container({"cpu": "500m"}), container({"cpu": 1, "memory": "1Gi"})]}
    assert podtemplate.requests(spec) == {"cpu": 1500, "memory": 2**30}
    assert podtemplate.requests({"containers": [container({"cpu": "0"}), {"name": "x"}]}) == {}


def test_a_limit_stands_in_per_resource() -> None:
    """A request for one resource does not hide the limit of another."""
    spec = {"containers": [container({"cpu": "1"}, {"cpu": "4", "nvidia.com/gpu": 1})]}
    assert podtemplate.requests(spec) == {"cpu": 1000, "nvidia.com/gpu": 1000}


def test_the_largest_init_step_counts() -> None:
    """Init containers run one after another, before the others."""
    spec = {
        "initContainers": [container({"cpu": "3"}), container({"cpu": "2", "memory": "1k"})],
        "containers": [container({"cpu": "1"})],
    }
    assert podtemplate.requests(spec) == {"cpu": 3000, "memory": 1000}


def test_sidecars_run_beside_later_steps_and_the_containers() -> None:
    """A restartable init container is added to what starts after it, not before it."""
    spec = {
        "initContainers": [
            container({"cpu": "4"}),
            container({"cpu": "1"}, restartPolicy="Always"),
            container({"cpu": "3500m"}),
        ],
        "containers": [container({"cpu": "2"})],
    }
    assert podtemplate.requests(spec) == {"cpu": 4500}


def test_overhead_is_added() -> None:
    """A sandboxed pod costs its runtime, too."""
    spec = {"containers": [container({"cpu": "1"})], "overhead": {"cpu": "250m", "memory": "64Mi"}}
    assert podtemplate.requests(spec) == {"cpu": 1250, "memory": 2**26}


def test_resources_of_the_pod_replace_the_sum() -> None:
    """A request at pod level wins; a limit there counts only where nothing else is said."""
    spec = {
        "containers": [container({"cpu": "1", "nvidia.com/gpu": 1})],
        "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "4", "memory": "1Gi"}},
    }
    expected = {"cpu": 3000, "nvidia.com/gpu": 1000, "memory": 2**30}
    assert podtemplate.requests(spec) == expected


def test_a_wrong_quantity_is_named() -> None:
    """The error repeats what was written."""
    with pytest.raises(ValueError, match='"1GB" is not a quantity'):
        podtemplate.requests({"containers": [container({"memory": "1GB"})]})
