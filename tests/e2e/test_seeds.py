# SPDX-License-Identifier: Apache-2.0
"""The TFJobs of the seeds' documents, applied as they stand, under the flags of the documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from muster.local.handle import Cluster
from support.e2e import gang_schedulers
from support.e2e.gang_schedulers import GROUP_NAME, SCHEDULER_PLUGINS, VOLCANO
from support.e2e.harness import (
    Api,
    Json,
    Operator,
    Refused,
    StartOperator,
    add_nodes,
    node_of,
    verdict,
)

pytestmark = pytest.mark.e2e


SEEDS = Path(__file__).parents[1] / "seeds"
ALPHA = "tfjob-v1alpha2-kube-batch.yaml"
PODGROUP = "tfjob-v1beta1-podgroup.yaml"
ON_VOLCANO = "tfjob-v1beta1-volcano.yaml"
SIMPLE = "tfjob-v1-scheduler-plugins.yaml"
BINPACK = "tfjob-v1-binpack.yaml"

GPU_NODE = {"cpu": "8", "nvidia.com/gpu": "4"}
OTHER_SCHEDULER = "SetPodTemplateSchedulerName"
RESTART_POLICY = "SetPodTemplateRestartPolicy"
WARNED_OF = frozenset({OTHER_SCHEDULER, RESTART_POLICY, "GroupNameOverwritten"})
ONE_OF_EACH = {"cpu": "1", "nvidia.com/gpu": "1"}


@dataclass(frozen=True)
class Seed:
    """What one manifest comes to, whatever the gang scheduler."""

    file: str
    name: str
    members: tuple[str, ...]
    """Pods without the job's name, in alphabetical order."""
    warnings: frozenset[str] = frozenset()
    """Warnings about the manifest itself."""
    restart_policy: str = "Never"
    clean: str | None = None
    """The top-level cleanPodPolicy that the server holds."""
    resources: Json = field(default_factory=dict)
    """What the gang asks for."""
    namespace: str = ""
    """Written in the manifest."""


LIST = (
    Seed(
        ALPHA,
        "tfjob-gang-scheduling",
        ("ps-0", "worker-0"),
        frozenset({RESTART_POLICY}),
        clean="Running",
        resources=ONE_OF_EACH,
    ),
    Seed(
        PODGROUP,
        "gang-scheduling-podgroup",
        ("worker-0", "worker-1"),
        clean="None",
        resources={"nvidia.com/gpu": "2"},
    ),
    Seed(
        ON_VOLCANO,
        "tfjob-gang-scheduling",
        ("ps-0", "worker-0"),
        frozenset({RESTART_POLICY}),
        clean="Running",
        resources=ONE_OF_EACH,
    ),
    Seed(
        SIMPLE,
        "tfjob-simple",
        ("worker-0", "worker-1"),
        restart_policy="OnFailure",
        namespace="kubeflow",
    ),
    Seed(
        BINPACK,
        "tf-smoke-gpu",
        ("ps-0", "worker-0", "worker-1", "worker-2", "worker-3"),
        frozenset({RESTART_POLICY}),
        resources={"cpu": "1", "nvidia.com/gpu": "4"},
    ),
)
BY_FILE = {seed.file: seed for seed in LIST}


@dataclass(frozen=True)
class Backend:
    """What one gang scheduler makes of every job."""

    overlay: str
    path: str
    api_version: str
    links: Callable[[str, str], tuple[Json, Json]]
    """(job, role) -> annotations and labels that tie a pod to its group."""
    queue: bool = True
    resources: bool = True
    served_by: str = ""
    """The CRD that the tests bring for it."""


def by_annotation(job: str, _role: str) -> tuple[Json, Json]:
    """Return kube-batch's link."""
    return {GROUP_NAME: job}, {}


def for_volcano(job: str, role: str) -> tuple[Json, Json]:
    """Return Volcano's link."""
    return {GROUP_NAME: job, "volcano.sh/task-spec": role}, {}


def by_label(job: str, _role: str) -> tuple[Json, Json]:
    """Return scheduler-plugins' link."""
    return {}, {"scheduling.x-k8s.io/pod-group": job}


OWN_API = "scheduling.incubator.k8s.io/v1alpha1"
EMBEDDED = Backend("embedded", "PodGroup", OWN_API, by_annotation)
KUBE_BATCH = Backend("kube-batch", "PodGroup", OWN_API, by_annotation, resources=False)
ON_VOLCANO_API = Backend(
    "volcano", VOLCANO, "scheduling.volcano.sh/v1beta1", for_volcano, served_by="volcano"
)
COSCHEDULING = Backend(
    "scheduler-plugins",
    SCHEDULER_PLUGINS,
    "scheduling.x-k8s.io/v1alpha1",
    by_label,
    queue=False,
    served_by="scheduler-plugins",
)


@pytest.fixture
def kubeflow(local_cluster: Cluster) -> Iterator[Api]:
    """Give the namespace that some of the manifests name."""
    made = Api(local_cluster, "kubeflow")
    try:
        made.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow"}})
    except Refused as error:
        assert error.code == 409
    made.wait("ServiceAccount", lambda found: "default" in found)
    yield made
    for kind in ("TFJob", "Pod", "PodGroup"):
        made.send("DELETE", made.path(kind), {"gracePeriodSeconds": 0})


def template_of(seed: Seed, role: str) -> Json:
    """Return the pod template of a role as the manifest has it."""
    document = yaml.safe_load((SEEDS / seed.file).read_text())
    replicas: Json = document["spec"]["tfReplicaSpecs"]
    return next(spec["template"] for type_, spec in replicas.items() if type_.lower() == role)


def check_group(api: Api, seed: Seed, backend: Backend) -> None:
    """Compare the group object with the backend's table."""
    job = api.get("TFJob", seed.name)
    assert job["spec"].get("cleanPodPolicy") == seed.clean
    made = gang_schedulers.group(api, backend.path, seed.name)
    spec: Json = {"minMember": len(seed.members)}
    if backend.queue:
        spec["queue"] = "default"
    if backend.resources and seed.resources:
        spec["minResources"] = seed.resources
    assert gang_schedulers.written(made) == gang_schedulers.expected(
        backend.api_version, job, spec
    )


def check_pods(api: Api, seed: Seed, backend: Backend, filled: str) -> list[Json]:
    """Compare the pods with template and tables; `filled` is for templates without scheduler."""
    job = api.get("TFJob", seed.name)
    found = gang_schedulers.pods(api, seed.name, len(seed.members))
    names = [pod["metadata"]["name"] for pod in found]
    assert names == [f"{seed.name}-{member}" for member in seed.members]
    for pod, member in zip(found, seed.members, strict=True):
        role, _, index = member.partition("-")
        template = template_of(seed, role)
        annotations, labels = backend.links(seed.name, role)
        metadata, spec = pod["metadata"], pod["spec"]
        given = template.get("metadata") or {}
        assert metadata.get("annotations", {}) == {**given.get("annotations", {}), **annotations}
        assert metadata["labels"] == {
            **given.get("labels", {}),
            **gang_schedulers.labels_of(job),
            "training.kubeflow.org/replica-type": role,
            "training.kubeflow.org/replica-index": index,
            **({"training.kubeflow.org/job-role": "master"} if member == "worker-0" else {}),
            **labels,
        }
        assert metadata["ownerReferences"] == gang_schedulers.owned_by(job)
        assert spec["schedulerName"] == template["spec"].get("schedulerName", filled)
        assert spec["restartPolicy"] == seed.restart_policy
        (container,), (wanted,) = spec["containers"], template["spec"]["containers"]
        for key in ("name", "image", "args", "command", "workingDir"):
            assert container.get(key) == wanted.get(key)
        assert tf_config(container)["task"] == {"type": role, "index": int(index)}
        assert sorted(tf_config(container)["cluster"]) == sorted({m[:-2] for m in seed.members})
    return found


def tf_config(container: Json) -> Json:
    """Return the TF_CONFIG of a container."""
    (value,) = [e["value"] for e in container["env"] if e["name"] == "TF_CONFIG"]
    config: Json = json.loads(value)
    return config


def check_warnings(api: Api, seed: Seed, *more: str) -> None:
    """Compare the warnings about the manifest, each of which is given once."""
    wanted, uid = sorted([*seed.warnings, *more]), api.get("TFJob", seed.name)["metadata"]["uid"]

    def warned(found: dict[str, Json]) -> list[str]:
        about = [e for e in found.values() if e["involvedObject"]["uid"] == uid]
        assert all(e["type"] == "Warning" for e in about if e["reason"] in WARNED_OF)
        return sorted(e["reason"] for e in about if e["reason"] in WARNED_OF)

    if wanted:
        api.wait("Event", lambda found: warned(found) == wanted, what=f"warnings {wanted}")
    api.wait_job(seed.name, lambda job: "status" in job)
    assert warned({e["metadata"]["name"]: e for e in api.events()}) == wanted


OLD = ("--alsologtostderr", "-v=1", "--enable-gang-scheduling=true")
UNDER_THEIR_FLAGS = [
    pytest.param(ALPHA, OLD, KUBE_BATCH, "kube-batch", id="kubeflow-0.3"),
    pytest.param(PODGROUP, OLD, KUBE_BATCH, "kube-batch", id="kube-batch-faq"),
    pytest.param(
        ON_VOLCANO,
        ("--enable-gang-scheduling=true", "--gang-scheduler-name=volcano"),
        ON_VOLCANO_API,
        "volcano",
        id="volcano",
    ),
    pytest.param(
        SIMPLE,
        ("--gang-scheduling=default-scheduler", "-alsologtostderr", "--lock-namespace=mpi"),
        COSCHEDULING,
        "default-scheduler",
        id="scheduler-plugins-as-default-scheduler",
    ),
]


@pytest.mark.parametrize(("file", "flags", "backend", "filled"), UNDER_THEIR_FLAGS)
def test_under_the_flags_of_its_document(
    api: Api,
    kubeflow: Api,
    start_operator: StartOperator,
    file: str,
    flags: tuple[str, ...],
    backend: Backend,
    filled: str,
) -> None:
    """Group, pods, links and schedulerName as the contracts say; a named scheduler stays."""
    seed = BY_FILE[file]
    home = kubeflow if seed.namespace else api
    named_otherwise = "default-scheduler" in flags[0]
    with gang_schedulers.installed(api, backend.served_by) if backend.served_by else nullcontext():
        start_operator(*flags, overlay=backend.overlay)
        home.create_file(SEEDS / file)
        check_group(home, seed, backend)
        if backend is ON_VOLCANO_API:
            home.wait_job(seed.name, lambda job: verdict(job).get("state") == "Queued")
            assert home.pods(seed.name) == []
            home.patch(VOLCANO, seed.name, {"status": {"phase": "Inqueue"}})
        for pod in check_pods(home, seed, backend, filled):
            assert node_of(pod) == ""
        check_warnings(home, seed, *([OTHER_SCHEDULER] if named_otherwise else []))
        home.delete("TFJob", seed.name)


@pytest.mark.parametrize(
    ("file", "left"),
    [
        (ALPHA, ["worker-0"]),
        (PODGROUP, ["worker-0", "worker-1"]),
        (BINPACK, ["ps-0", "worker-0", "worker-1", "worker-2", "worker-3"]),
    ],
)
def test_the_embedded_scheduler_runs_it(
    api: Api, operator: Operator, file: str, left: list[str]
) -> None:
    """The whole gang waits for its GPUs, then runs to Succeeded; clean-up is the version's."""
    seed = BY_FILE[file]
    add_nodes(api, {"cpu": "8"}, prefix="bare")
    api.create_file(SEEDS / file)
    waiting = api.wait_job(seed.name, lambda job: verdict(job).get("reason"))
    assert verdict(waiting)["shortage"]["nvidia.com/gpu"] == seed.resources["nvidia.com/gpu"]
    check_group(api, seed, EMBEDDED)
    check_pods(api, seed, EMBEDDED, "muster")
    assert [node_of(pod) for pod in api.pods(seed.name)] == [""] * len(seed.members)
    add_nodes(api, GPU_NODE, GPU_NODE, prefix="gpu")
    job = api.wait_condition(seed.name, "Succeeded")
    assert job["status"]["state"] == "Succeeded"
    check_warnings(api, seed)
    gang_schedulers.no_group(api, "PodGroup", seed.name)
    api.wait("Pod", lambda pods: sorted(pods) == [f"{seed.name}-{member}" for member in left])


def test_the_embedded_scheduler_leaves_the_scheduler_that_a_job_names(
    api: Api, kubeflow: Api, operator: Operator
) -> None:
    """`scheduler-plugins-scheduler` is somebody else: pods are made for it, and a warning says so.

    Group and link are there all the same.
    """
    seed = BY_FILE[SIMPLE]
    add_nodes(api, GPU_NODE)
    kubeflow.create_file(SEEDS / SIMPLE)
    check_group(kubeflow, seed, EMBEDDED)
    for pod in check_pods(kubeflow, seed, EMBEDDED, "muster"):
        assert node_of(pod) == ""
    check_warnings(kubeflow, seed, OTHER_SCHEDULER)
    job = kubeflow.wait_job(seed.name, lambda j: verdict(j).get("reason") == "ForeignScheduler")
    assert verdict(job)["state"] == "Waiting"
