# SPDX-License-Identifier: Apache-2.0
"""Jobs as users write them: what is read of them."""

from __future__ import annotations

from muster.api import jobs

WORKER = {"template": {"spec": {"containers": [{"name": "tensorflow", "image": "x"}]}}}


def test_a_spec_is_read_as_written() -> None:
    """Nothing is defaulted except suspend, and the template stays the document it is."""
    spec = jobs.TFJobSpec.model_validate(
        {
            "tfReplicaSpecs": {"worker": {"replicas": 2, **WORKER}},
            "runPolicy": {"schedulingPolicy": {"minResources": {"cpu": 4, "memory": "1Gi"}}},
            "successPolicy": "AllWorkers",
        }
    )
    worker = spec.tf_replica_specs["worker"]
    assert worker.replicas == 2
    assert worker.restart_policy is None
    assert worker.template == WORKER["template"]
    assert spec.run_policy is not None
    assert spec.run_policy.suspend is False
    assert spec.run_policy.scheduling_policy is not None
    assert spec.run_policy.scheduling_policy.min_resources == {"cpu": 4, "memory": "1Gi"}
    assert spec.success_policy == "AllWorkers"


def test_unknown_fields_and_nulls_are_ignored() -> None:
    """The API server prunes unknown fields; a field set to null is treated as absent."""
    spec = jobs.TFJobSpec.model_validate({"tfReplicaSpecs": {}, "mystery": 1, "runPolicy": None})
    assert (spec.tf_replica_specs, spec.run_policy) == ({}, None)
