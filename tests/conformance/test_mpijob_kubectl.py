# SPDX-License-Identifier: Apache-2.0
"""What an MPIJob of v1 creates: a launcher that may run commands in its own workers."""

import pytest

from muster import gang
from muster.controller.model import Context
from muster.frameworks.base import Waiting
from support.apiserver.memory import World
from support.builders.mpijobs import LAUNCHER, environment, mpijob, role, world

GPU = role(container={"resources": {"limits": {"nvidia.com/gpu": 1}}})
AMOUNTS = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}


def config(made):
    """Return the data of the config map."""
    return made.objects["ConfigMap", "mnist-config"]["data"]


def volume(*items):
    """Return the volume with these files of the config map."""
    listed = [{"key": key, "path": key, "mode": mode} for key, mode in items]
    return {"name": "mpi-job-config", "configMap": {"name": "mnist-config", "items": listed}}


def test_all_that_it_creates():
    """What the pods need, with powers that end at the job's workers, and the launcher last."""
    made = world("v1")
    created = [write.doc for write in made.writes if hasattr(write, "doc")]
    assert [(doc["kind"], doc["metadata"]["name"]) for doc in created] == [
        ("ServiceAccount", LAUNCHER),
        ("ConfigMap", "mnist-config"),
        ("Role", LAUNCHER),
        ("RoleBinding", LAUNCHER),
        ("Pod", "mnist-worker-0"),
        ("Pod", "mnist-worker-1"),
        ("Pod", LAUNCHER),
    ]
    assert len(made.objects) == len(created)
    for (kind, _), found in made.objects.items():
        (owner,) = found["metadata"]["ownerReferences"]
        assert (owner["apiVersion"], owner["kind"]) == ("kubeflow.org/v1", "MPIJob")
        labels = found["metadata"]["labels"]
        assert labels["training.kubeflow.org/operator-name"] == "mpijob-controller"
        assert labels.get("app") == (None if kind == "Pod" else "mnist")
    assert made.status["mpiVersion"] == "v1"
    assert not world("v1", policy={"suspend": True}).objects


STRANGER = {
    "apiVersion": "example.org/v1",
    "kind": "X",
    "name": "x",
    "uid": "other",
    "controller": True,
}


def test_powers_over_no_pod_that_is_not_there_yet():
    """A pod of somebody else may come under a name that is only wanted."""
    made = World(mpijob("v1"), backend=gang.EMBEDDED).settle()
    see = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    assert made.names() == []
    assert made.objects["Role", LAUNCHER]["rules"] == [see]


def test_powers_end_with_the_pods():
    """A suspended job has none, and its launcher no business in who comes under their names."""
    made = world("v1")
    made.job["spec"]["runPolicy"] = {"suspend": True}
    made.edit().settle()
    assert made.names() == []
    assert len(made.objects["Role", LAUNCHER]["rules"]) == 1


def test_the_launchers_powers():
    """It sees pods and enters its own workers, those that there are by now."""
    made = world("v1")
    assert made.objects["RoleBinding", LAUNCHER]["subjects"] == [
        {"kind": "ServiceAccount", "name": LAUNCHER, "namespace": "team"}
    ]
    assert made.objects["RoleBinding", LAUNCHER]["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": LAUNCHER,
    }
    see = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    enter = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]}
    mine = ["mnist-worker-0", "mnist-worker-1"]
    rules = made.objects["Role", LAUNCHER]
    assert rules["rules"] == [see, {**enter, "resourceNames": mine}]
    made.scale(3).settle()
    assert rules["rules"][1]["resourceNames"] == [*mine, "mnist-worker-2"]
    third = made.objects.pop(("Pod", "mnist-worker-2"))
    made.scale(2).settle()
    assert rules["rules"][1]["resourceNames"] == mine
    stranger = {**third["metadata"], "ownerReferences": [STRANGER], "uid": "theirs"}
    made.objects["Pod", "mnist-worker-2"] = {**third, "metadata": stranger}
    made.scale(3).settle()
    assert rules["rules"][1]["resourceNames"] == mine
    made.lose("mnist-worker-2").scale(0).settle()
    assert rules["rules"] == [see]  # no names would mean all pods


def test_an_account_of_the_users_is_used_and_left_alone():
    """It is neither made nor owned by the job, and nothing is given to it but a warning."""
    made = world("v1", launcher=role(serviceAccountName="mine"))
    assert ("ServiceAccount", LAUNCHER) not in made.objects
    assert ("RoleBinding", LAUNCHER) not in made.objects
    assert "LauncherNotBound" in made.reasons()
    assert made.objects["Role", LAUNCHER]["rules"][1]["resourceNames"]
    assert made.pod(LAUNCHER)["spec"]["serviceAccountName"] == "mine"


@pytest.mark.parametrize(("leads", "first"), [(role(), []), (GPU, [LAUNCHER])])
def test_hosts_of_the_job_are_listed(leads, first):
    """By index, after a launcher that has a GPU; the script lists the workers that run."""
    made = world("v1", workers=11, slotsPerWorker=2, launcher=leads)
    workers = [f"mnist-worker-{i}" for i in range(11)]
    listed = [f"{host} slots=2" for host in (*first, *workers)]
    assert config(made)["hostfile"].splitlines() == listed
    made.start(workers[10], workers[2]).settle()
    told = [f"echo {host}:2" for host in (*first, workers[2], workers[10])]
    assert config(made)["discover_hosts.sh"].splitlines() == ["#!/bin/sh", *told]


@pytest.mark.parametrize(
    ("container", "call"),
    [
        (None, 'exec "$pod" -- /bin/sh -c "$*"'),
        ("main", 'exec "$pod" --container "main" -- /bin/sh -c "$*"'),
    ],
)
def test_the_script_that_enters_a_worker(container, call):
    """The first argument names the pod, the rest is run in it."""
    made = world("v1", **({"mainContainer": container} if container else {}))
    lines = config(made)["kubexec.sh"].splitlines()
    assert lines[:2] == ["#!/bin/sh", "set -x"]
    assert lines[-1] == f"/opt/kube/kubectl {call}"


def test_a_worker():
    """It sleeps until the launcher comes."""
    made = world("v1")
    pod = made.pod("mnist-worker-1")
    assert pod["metadata"]["labels"] == {
        "training.kubeflow.org/operator-name": "mpijob-controller",
        "training.kubeflow.org/job-name": "mnist",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "1",
    }
    (container,) = pod["spec"]["containers"]
    assert (container["command"], container["args"]) == (["sleep"], ["365d"])
    assert container["volumeMounts"] == [{"name": "mpi-job-config", "mountPath": "/etc/mpi"}]
    assert "env" not in container
    assert pod["spec"]["volumes"] == [volume(("kubexec.sh", 0o555))]
    assert pod["spec"]["restartPolicy"] == "Never"
    own = world("v1", worker=role(container={"command": ["own"], "args": ["a"]}))
    (container,) = own.pod("mnist-worker-0")["spec"]["containers"]
    assert (container["command"], container["args"]) == (["own"], ["a"])


def test_the_launcher():
    """It has kubectl brought to it, and finds its hosts and its way to them."""
    context = Context(waiting=Waiting(delivery_image="kubectl:2"))
    made = world("v1", context=context)
    pod = made.pod(LAUNCHER)
    assert pod["metadata"]["labels"] == {
        "training.kubeflow.org/operator-name": "mpijob-controller",
        "training.kubeflow.org/job-name": "mnist",
        "training.kubeflow.org/replica-type": "launcher",
        "training.kubeflow.org/job-role": "master",
    }
    spec = pod["spec"]
    assert spec["serviceAccountName"] == LAUNCHER
    mounts = [
        {"name": "mpi-job-kubectl", "mountPath": "/opt/kube"},
        {"name": "mpi-job-config", "mountPath": "/etc/mpi"},
    ]
    assert spec["initContainers"] == [
        {
            "name": "kubectl-delivery",
            "image": "kubectl:2",
            "imagePullPolicy": "IfNotPresent",
            "env": [
                {"name": "TARGET_DIR", "value": "/opt/kube"},
                {"name": "NAMESPACE", "value": "team"},
            ],
            "volumeMounts": mounts,
            "resources": {"limits": AMOUNTS, "requests": AMOUNTS},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }
    ]
    (container,) = spec["containers"]
    assert container["volumeMounts"] == mounts
    assert spec["volumes"] == [
        {"name": "mpi-job-kubectl", "emptyDir": {}},
        volume(("kubexec.sh", 0o555), ("hostfile", 0o444), ("discover_hosts.sh", 0o555)),
    ]
    assert environment(container) == [
        ("OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh"),
        ("OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"),
        ("NVIDIA_VISIBLE_DEVICES", ""),
        ("NVIDIA_DRIVER_CAPABILITIES", ""),
        ("I_MPI_HYDRA_BOOTSTRAP", "rsh"),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", "/etc/mpi/kubexec.sh"),
    ]


def test_the_launchers_environment_leaves_what_its_author_set():
    """Of Intel's variables; with a GPU it may see the devices."""
    mine = [{"name": "I_MPI_HYDRA_BOOTSTRAP", "value": "ssh"}]
    gpu = GPU["template"]["spec"]["containers"][0]
    made = world("v1", launcher=role(container={**gpu, "env": mine}))
    assert environment(made.pod(LAUNCHER)["spec"]["containers"][0]) == [
        ("OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh"),
        ("OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", "/etc/mpi/kubexec.sh"),
        ("I_MPI_HYDRA_BOOTSTRAP", "ssh"),
    ]
    assert "EnvironmentOverwritten" not in made.reasons()


def test_defaults():
    """A launcher, no workers, nothing is tried again."""
    made = world("v1", workers=None)
    assert made.names() == [LAUNCHER]
    assert made.pod(LAUNCHER)["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    ("policy", "top", "kept"),
    [({}, "All", []), ({"cleanPodPolicy": "Running"}, "All", [LAUNCHER]), ({}, None, None)],
)
def test_where_it_said_what_is_cleaned_up_before_there_was_a_run_policy(policy, top, kept):
    """It holds; the run policy wins, and that is told; neither: nothing is cleaned up."""
    made = world("v1", policy=policy, **({"cleanPodPolicy": top} if top else {}))
    made.start().settle().end(LAUNCHER).settle()
    made.reap().settle()
    everything = [LAUNCHER, "mnist-worker-0", "mnist-worker-1"]
    assert made.names() == (everything if kept is None else kept)
    told = [e.message for e in made.said if e.reason == "LegacyFieldIgnored"]
    text = "spec.cleanPodPolicy is ignored because spec.runPolicy.cleanPodPolicy is set"
    assert told == ([text] if policy else [])


def test_all_pods_are_one_gang():
    """The launcher is one of them."""
    made = world("v1", backend=gang.KUBE_BATCH)
    assert made.objects["PodGroup", "mnist"]["spec"]["minMember"] == 3


def test_a_restart_policy_in_a_template_is_told_of_the_launchers_only():
    """Under the event's old name."""
    quiet = world("v1", worker=role(restartPolicy="Always"))
    assert "SettedPodTemplateRestartPolicy" not in quiet.reasons()
    loud = world("v1", launcher=role(restartPolicy="Always"))
    (told,) = (e for e in loud.said if e.reason == "SettedPodTemplateRestartPolicy")
    text = "Restart policy in pod template will be overwritten by restart policy in replica spec"
    assert (told.type, told.message) == ("Warning", text)
