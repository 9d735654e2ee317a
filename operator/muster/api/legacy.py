# SPDX-License-Identifier: Apache-2.0
"""What older API versions of a kind had elsewhere, as data.

tf-operator up to 0.5 kept the run policy's fields at the top of the spec. They are accepted in
every served version and mean what they meant; `runPolicy` wins where both are set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from muster.api.model import Json

RUN_POLICY_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "TFJob": (
        "cleanPodPolicy",
        "ttlSecondsAfterFinished",
        "activeDeadlineSeconds",
        "backoffLimit",
    ),
    "MPIJob": ("cleanPodPolicy",),
}
"""Kind -> fields at the top of its spec that act as the field of that name in `runPolicy`."""

VERSION_DEFAULTS: Final[Mapping[tuple[str, str], Mapping[str, object]]] = {
    ("TFJob", "v1alpha2"): {"cleanPodPolicy": "Running"},
    ("TFJob", "v1beta1"): {"cleanPodPolicy": "Running"},
    ("TFJob", "v1beta2"): {"cleanPodPolicy": "Running"},
    ("MPIJob", "v2beta1"): {
        "slotsPerWorker": 1,
        "runLauncherAsWorker": False,
        "sshAuthMountPath": "/root/.ssh",
        "launcherCreationPolicy": "AtStartup",
        "mpiImplementation": "OpenMPI",
    },
}
"""(kind, version) -> defaults of top-level fields that the schema of that version alone has."""


def fold(kind: str, spec: Json) -> tuple[Json, tuple[str, ...]]:
    """Return the spec's `runPolicy` with the old fields in it, and those that it overrules.

    The spec is not changed. A field is overruled only if the run policy says something else.
    """
    policy: Json = {k: v for k, v in (spec.get("runPolicy") or {}).items() if v is not None}
    listed = RUN_POLICY_FIELDS.get(kind, ())
    old = {name: spec[name] for name in listed if spec.get(name) is not None}
    ignored = tuple(name for name in old if policy.get(name, old[name]) != old[name])
    return old | policy, ignored
