# SPDX-License-Identifier: Apache-2.0
"""The owner that a controller reference names."""

from __future__ import annotations

from muster.api import owner


def test_owner_is_read_from_the_controller_reference() -> None:
    """The namespace of the owner is the namespace of the object that has the reference."""
    job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "mnist", "uid": "u"}
    metadata = {"namespace": "team", "ownerReferences": [{**job, "controller": True}]}
    found = owner.controller(metadata)
    assert found == owner.Owner("team", "kubeflow.org", "TFJob", "mnist", "u")
