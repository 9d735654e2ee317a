# SPDX-License-Identifier: Apache-2.0
"""Whose an object is, and what is kept of that."""

from __future__ import annotations

import tracemalloc

from muster.api import owner


def reference(**fields: str) -> dict[str, object]:
    """Return the metadata of an object that a job controls."""
    job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "mnist", "uid": "u"}
    return {"namespace": "team", "ownerReferences": [{**job, "controller": True, **fields}]}


def test_pods_of_a_job_share_their_owner() -> None:
    """There may be thousands of them."""
    found = owner.controller(reference())
    assert found == owner.Owner("team", "kubeflow.org", "TFJob", "mnist", "u")
    assert owner.controller(reference()) is found


def test_nothing_is_kept_of_a_long_reference() -> None:
    """It is anybody's, names nothing that there can be, and thousands are remembered."""
    tracemalloc.start()
    try:
        for number in range(50):
            found = owner.controller(reference(uid=f"{number}" + "x" * 20_000))
            assert found is not None
            assert len(found.uid) > 20_000
        del found
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 50 * 1_000
