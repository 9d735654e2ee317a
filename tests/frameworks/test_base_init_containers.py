# SPDX-License-Identifier: Apache-2.0
"""How a pod waits for another: the built-in container, and a file that replaces it."""

import shutil
import subprocess

import pytest

from muster.frameworks import FRAMEWORKS
from muster.frameworks.base import Waiting, init_containers
from muster.frameworks.mpi_v1 import MPI_V1
from muster.frameworks.pytorch import PYTORCH
from muster.settings import Settings, TemplateError
from support.builders.objects import make_job, make_replica

DROPPED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
RUNS_AS = {
    "runAsGroup": 7,
    "runAsNonRoot": True,
    "runAsUser": 0,
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
    (made,) = init_containers("init-pytorch", Waiting("own:1"), "mnist-master-0")
    script = made["command"].pop()
    assert made == {
        "name": "init-pytorch",
        "image": "own:1",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c"],
        "resources": {
            "limits": {"cpu": "100m", "memory": "20Mi"},
            "requests": {"cpu": "50m", "memory": "10Mi"},
        },
        "securityContext": DROPPED,
    }
    for part in ("seq 100", "$look mnist-master-0", "exit 0", "sleep 2", "exit 1"):
        assert part in script


@pytest.mark.parametrize(
    ("tools", "found", "code"),
    [
        (("getent",), "0", 0),
        (("getent",), "1", 1),
        (("nslookup",), "0", 0),
        (("nslookup",), "1", 1),
        (("getent", "nslookup"), "0", 0),
        ((), "1", 0),
    ],
)
def test_it_looks_with_what_the_image_has(tmp_path, tools, found, code):
    """And lets the program try by itself where there is nothing to look with."""
    for tool in tools:
        words = '"$*" = "hosts mnist-master-0"' if tool == "getent" else '"$*" = mnist-master-0'
        (tmp_path / tool).write_text(f"#!/bin/sh\n[ {words} ] && exit {found}; exit 9\n")
        (tmp_path / tool).chmod(0o755)
    for tool in ("seq", "sleep", "sh"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    (made,) = init_containers("init", Waiting("own:1", tries=1), "mnist-master-0")
    command = [part.replace("sleep 2", "sleep 0") for part in made["command"]]
    env = {"PATH": str(tmp_path)}
    assert subprocess.run(command, env=env, check=False, capture_output=True).returncode == code


@pytest.mark.parametrize(
    ("flag", "own", "wanted"),
    [
        ("", {}, ("train:1", "IfNotPresent")),
        ("", {"imagePullPolicy": "Never"}, ("train:1", "Never")),
        ("alpine@sha256:1", {"imagePullPolicy": "Never"}, ("alpine@sha256:1", "IfNotPresent")),
    ],
)
def test_without_a_flag_no_other_image_is_needed(flag, own, wanted):
    """The program's own is there in any case, pulled as its author wants it."""
    containers = [
        {"name": "sidecar", "image": "s"},
        {"name": "pytorch", "image": "train:1", **own},
    ]
    worker = make_replica(type="Worker", template={"spec": {"containers": containers}})
    job = make_job(kind="PyTorchJob", replicas=(make_replica(type="Master"), worker))
    (made,) = FRAMEWORKS["PyTorchJob"].pods.init_containers(job, worker, Waiting(flag))
    assert (made["image"], made["imagePullPolicy"]) == wanted


CONTAINERS = {"PyTorchJob": (PYTORCH, "pytorch"), "MPIJob": (MPI_V1, "mpi")}


def added(kind, waiting=None, **container):
    """Return the containers that are added to a job whose framework container is like this."""
    framework, name = CONTAINERS[kind]
    sidecar = {"name": "sidecar", "securityContext": {"runAsUser": 9}}
    own = {"name": name, "image": "train:1", **container}
    listed = [sidecar, own] if kind == "PyTorchJob" else [own, sidecar]
    template = {"spec": {"containers": listed}}
    roles = tuple(make_replica(type=t, template=template) for t in framework.api.types)
    job = make_job(kind=kind, replicas=roles)
    return [
        made
        for replica in job.replicas
        for made in framework.pods.init_containers(job, replica, waiting or Waiting())
    ]


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        (None, DROPPED),
        ({}, DROPPED),
        (RUNS_AS, {**DROPPED, **RUNS_AS}),
        ({"runAsUser": 1000, "runAsGroup": None}, {**DROPPED, "runAsUser": 1000}),
        ({"privileged": True, "capabilities": {"add": ["SYS_ADMIN"]}}, DROPPED),
        ({"allowPrivilegeEscalation": True, "readOnlyRootFilesystem": True}, DROPPED),
    ],
)
def test_added_container_runs_as_the_framework_container(kind, own, wanted):
    """Admission that accepts the framework container's user accepts the added container's."""
    (made,) = added(kind, **({} if own is None else {"securityContext": own}))
    assert made["securityContext"] == wanted


GPU = {"nvidia.com/gpu": 8, "hugepages-2Mi": "4Mi"}
AMOUNTS = {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "1Gi"}


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize(
    ("resources", "wanted"),
    [
        (None, {}),
        ({"limits": GPU, "requests": None}, {}),
        ({"limits": {**AMOUNTS, **GPU}}, {"limits": AMOUNTS}),
        (
            {"limits": {**GPU, "memory": "4Gi"}, "requests": {"cpu": "1"}},
            {"limits": {"memory": "4Gi"}, "requests": {"cpu": "1"}},
        ),
    ],
)
def test_added_container_has_the_framework_resources_under_a_limit_range(kind, resources, wanted):
    """A minimum that the framework container reaches is reached, and no devices are requested."""
    (made,) = added(kind, Waiting(limited=True), resources=resources)
    assert made["resources"] == wanted
    (made,) = added(kind, resources=resources)
    assert {"cpu", "memory"} <= made["resources"]["limits"].keys()
    assert "nvidia.com/gpu" not in made["resources"]["limits"]


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
    with pytest.raises(TemplateError, match=said) as caught:
        Settings(pytorch_init_template=str(path)).waiting()
    assert str(path) in str(caught.value)


def test_the_flags_reach_the_containers(tmp_path):
    """Image, tries and file; a file that is not there is none."""
    path = tmp_path / "init.yaml"
    settings = Settings(
        pytorch_init_image="i", pytorch_init_tries=3, pytorch_init_template=str(path)
    )
    assert settings.waiting() == Waiting("i", 3, "")
    path.write_text(TEMPLATE)
    assert settings.waiting() == Waiting("i", 3, TEMPLATE)
