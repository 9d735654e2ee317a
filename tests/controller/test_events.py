# SPDX-License-Identifier: Apache-2.0
"""Single events, to the letter."""

import pytest

from muster.api.reasons import DeletionReason
from muster.controller import events
from muster.controller.model import Delete, Emit


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("Pod", "FailedDeletePod"),
        ("Service", "FailedDeleteService"),
        ("PodGroup", "FailedDeletePodGroup"),
        ("PodDisruptionBudget", "FailedDeletePdb"),
        ("TFJob", "FailedDeleteJob"),
        ("MPIJob", "FailedDeleteJob"),
        ("Job", "FailedDeleteJob"),
        ("ConfigMap", "FailedDeleteConfigMap"),
    ],
)
def test_a_deletion_that_failed(kind, reason):
    """A Warning with the server's words, once of each object."""
    action = Delete("v1", kind, "team", "mnist", "uid", DeletionReason.SURPLUS)
    assert events.of_failed_deletion(action, "not now") == Emit(
        "Warning", reason, "Error deleting: not now", once=True, about="uid"
    )
