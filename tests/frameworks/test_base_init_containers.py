# SPDX-License-Identifier: Apache-2.0
"""How a pod waits for another: the built-in container, and a file that replaces it."""

from __future__ import annotations

import pytest

from builders import make_job, make_replica
from muster.frameworks import FRAMEWORKS
from muster.frameworks.base import Waiting, init_containers
from muster.kube.auth import ConfigurationError
from muster.runtime import app
from muster.runtime.settings import Settings

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
TEMPLATE = """
- name: look
  image: {{.InitContainerImage}}
  command: [sh, -c, "look {{.MasterAddr}} {{.MaxTries}} {{.Other}}"]
- name: second
"""


def test_the_built_in_container_to_the_letter():
    """Small, pulled only if absent; looks the name up so often and no more."""
    (made,) = init_containers("init-pytorch", Waiting(), "mnist-master-0")
    script = made["command"].pop()
    assert made == {
        "name": "init-pytorch",
        "image": "alpine:3.10",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c"],
        "resources": {
            "limits": {"cpu": "100m", "memory": "20Mi"},
            "requests": {"cpu": "50m", "memory": "10Mi"},
        },
        "securityContext": RESTRICTED,
    }
    for part in ("seq 100", "nslookup mnist-master-0", "exit 0", "sleep 2", "exit 1"):
        assert part in script


@pytest.mark.parametrize("kind", ["PyTorchJob", "MPIJob"])
def test_every_added_container_passes_pod_security_restricted(kind):
    """In a namespace that demands it, a job fails by nothing that its author did not write."""
    framework = FRAMEWORKS[kind]
    roles = tuple(make_replica(type=type_) for type_ in framework.api.types)
    job = make_job(kind=kind, replicas=roles)
    added = [
        container
        for replica in job.replicas
        for container in framework.pods.init_containers(job, replica, Waiting())
    ]
    assert [container["securityContext"] for container in added] == [RESTRICTED]


def test_a_template_replaces_it():
    """Three placeholders are filled in, everything else stays as it is."""
    waiting = Waiting("busybox:1", 7, TEMPLATE)
    assert init_containers("init", waiting, "m-master-0") == (
        {
            "name": "look",
            "image": "busybox:1",
            "command": ["sh", "-c", "look m-master-0 7 {{.Other}}"],
        },
        {"name": "second"},
    )


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("name: x", "must be a list of containers"),
        ("- image: x", "must be a list of containers"),
        ("- [", "is no YAML"),
    ],
)
def test_a_wrong_template_is_said_at_the_start(tmp_path, template, said):
    """With the file's name, before any job can suffer from it."""
    path = tmp_path / "init.yaml"
    path.write_text(template)
    with pytest.raises(ConfigurationError, match=said) as caught:
        app._waiting(Settings(pytorch_init_template=str(path)))
    assert str(path) in str(caught.value)


def test_the_flags_reach_the_containers(tmp_path):
    """Image, tries and file; a file that is not there is none."""
    path = tmp_path / "init.yaml"
    settings = Settings(
        pytorch_init_image="i", pytorch_init_tries=3, pytorch_init_template=str(path)
    )
    assert app._waiting(settings) == Waiting("i", 3, "")
    path.write_text(TEMPLATE)
    assert app._waiting(settings) == Waiting("i", 3, TEMPLATE)
