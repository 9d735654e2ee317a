# SPDX-License-Identifier: Apache-2.0
"""The manifests of the seed documents, unchanged: what each becomes under its backend."""

from pathlib import Path

import pytest
import yaml

from muster import gang
from support.apiserver.memory import World

SEEDS = Path(__file__).parent.parent / "seeds"
OWN, PLUGINS = "scheduling.incubator.k8s.io/v1alpha1", "scheduling.x-k8s.io/v1alpha1"
# Manifest, flag -> number of pods, group's apiVersion and minMember, schedulerName of the pods.
TABLE = [
    ("tfjob-v1alpha2-kube-batch", "kube-batch", 2, OWN, 2, "kube-batch"),
    ("tfjob-v1alpha2-kube-batch", None, 2, OWN, 2, "kube-batch"),
    ("tfjob-v1alpha2-kube-batch", "none", 2, None, None, "kube-batch"),
    ("tfjob-v1beta1-podgroup", "kube-batch", 2, OWN, 2, "kube-batch"),
    ("tfjob-v1beta1-podgroup", None, 2, OWN, 2, "kube-batch"),
    ("tfjob-v1beta1-volcano", "volcano", 2, "scheduling.volcano.sh/v1beta1", 2, "volcano"),
    ("tfjob-v1beta1-volcano", "scheduler-plugins", 2, PLUGINS, 2, None),
    ("tfjob-v1beta1-volcano", None, 2, OWN, 2, "muster"),
    ("tfjob-v1-scheduler-plugins", "scheduler-plugins", 2, PLUGINS, 2,
     "scheduler-plugins-scheduler"),
    ("tfjob-v1-scheduler-plugins", "volcano", 2, "scheduling.volcano.sh/v1beta1", 2,
     "scheduler-plugins-scheduler"),
    ("tfjob-v1-scheduler-plugins", None, 2, OWN, 2, "scheduler-plugins-scheduler"),
    ("tfjob-v1-binpack", None, 5, OWN, 5, "muster"),
]  # fmt: skip


def lived(manifest, flag):
    """Return the world after the manifest was applied under a flag and placed."""
    document = yaml.safe_load((SEEDS / f"{manifest}.yaml").read_text())
    world = World(document, backend=gang.choose(flag)).settle()
    if world.backend.embedded:
        roles = document["spec"]["tfReplicaSpecs"].items()
        world.extra["placements"] = {
            f"{document['metadata']['name']}-{type_.lower()}-{index}": "node"
            for type_, role in roles
            for index in range(role["replicas"])
        }
    for group in world.of("PodGroup"):
        group["status"] = {"phase": "Inqueue"}
    return world.settle()


@pytest.mark.parametrize(("manifest", "flag", "pods", "api", "minimum", "scheduler"), TABLE)
def test_pods_group_and_scheduler(manifest, flag, pods, api, minimum, scheduler):
    """The pods, the group and the scheduler are as documented; the job succeeds."""
    world = lived(manifest, flag)
    name = world.job["metadata"]["name"]
    assert len(world.names()) == len(world.names("Service")) == pods
    assert {pod["spec"].get("schedulerName") for pod in world.of("Pod")} == {scheduler}
    found = [(g["apiVersion"], g["spec"]["minMember"], g["metadata"]["name"])
             for g in world.of("PodGroup")]  # fmt: skip
    assert found == ([(api, minimum, name)] if api else [])
    assert world.start().settle().conditions[-1] == "Running T"
    assert world.end(f"{name}-worker-0").settle().status["state"] == "Succeeded"
    assert not world.names("PodGroup")
