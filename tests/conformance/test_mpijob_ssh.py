# SPDX-License-Identifier: Apache-2.0
"""What an MPIJob of v2beta1 creates: by SSH from a launcher that is a batch Job."""

import os
import shutil
import subprocess

import pytest

from muster import gang
from muster.controller.model import Context, Create
from support.apiserver.memory import World
from support.builders.mpijobs import LAUNCHER, SECRETS, environment, mpijob, role, world

LABELS = {
    "training.kubeflow.org/operator-name": "mpi-operator",
    "training.kubeflow.org/job-name": "mnist",
}
POLICY = "SetPodTemplateRestartPolicy"
HOSTS = "mnist-worker-0.mnist.team.svc", "mnist-worker-1.mnist.team.svc"


def launcher(made):
    """Return the launcher's pod template."""
    return made.objects["Job", LAUNCHER]["spec"]["template"]


def config(made):
    """Return the data of the config map."""
    return made.objects["ConfigMap", "mnist-config"]["data"]


def test_all_that_it_creates():
    """Workers as pods, a launcher that is created last as a batch Job, what they need before."""
    made = world("v2beta1")
    created = [write.doc for write in made.writes if hasattr(write, "doc")]
    assert [(doc["kind"], doc["metadata"]["name"]) for doc in created] == [
        ("Service", "mnist"),
        ("ConfigMap", "mnist-config"),
        ("Secret", "mnist-ssh"),
        ("Pod", "mnist-worker-0"),
        ("Pod", "mnist-worker-1"),
        ("Job", LAUNCHER),
    ]
    assert len(made.objects) == len(created)
    for found in made.objects.values():
        (owner,) = found["metadata"]["ownerReferences"]
        assert (owner["apiVersion"], owner["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
        assert LABELS.items() <= found["metadata"]["labels"].items()
    others = [found for (kind, _), found in made.objects.items() if kind != "Pod"]
    assert {found["metadata"]["labels"]["app"] for found in others} == {"mnist"}
    assert made.status["mpiVersion"] == "v2beta1"


@pytest.mark.parametrize("doubles", [False, True])
def test_the_service_gives_every_pod_a_name(doubles):
    """Headless, without ports; before they are ready if the launcher is among the hosts."""
    made = world("v2beta1", runLauncherAsWorker=doubles)
    assert made.objects["Service", "mnist"]["spec"] == {
        "clusterIP": "None",
        "selector": LABELS,
        "publishNotReadyAddresses": doubles,
    }


def test_what_pods_need_is_kept_true():
    """Whoever changes it; and the flag of the service follows the job."""
    made = world("v2beta1")
    service, hosts = made.objects["Service", "mnist"], made.objects["ConfigMap", "mnist-config"]
    wanted = dict(config(made))
    service["spec"]["selector"] = {"app": "other"}
    hosts["data"] = {"hostfile": ""}
    made.edit(runLauncherAsWorker=True).settle()
    assert service["spec"]["selector"] == LABELS
    assert service["spec"]["publishNotReadyAddresses"] is True
    made.edit(runLauncherAsWorker=False).settle()
    assert service["spec"]["publishNotReadyAddresses"] is False
    assert config(made) == wanted


def test_the_secret_is_made_once_and_mended_when_its_keys_are_wrong():
    """Its values come from outside of the core, and stay for as long as they can be used."""
    made = world("v2beta1")
    secret = made.objects["Secret", "mnist-ssh"]
    assert (secret["type"], secret["data"]) == ("kubernetes.io/ssh-auth", SECRETS)
    secret["data"] = {"ssh-privatekey": "mine", "ssh-publickey": "mine"}
    made.settle()
    assert secret["data"]["ssh-privatekey"] == "mine"
    secret["data"] = {"ssh-privatekey": "mine", "other": "x"}
    made.settle()
    assert secret["data"] == SECRETS


@pytest.mark.parametrize("doubles", [False, True])
def test_the_script_tells_of_the_workers_that_run(doubles):
    """In the order of their indices, without slots, and it is changed when they change."""
    made = world("v2beta1", workers=11, runLauncherAsWorker=doubles)
    first = ["echo mnist-launcher.mnist.team.svc"] if doubles else []
    assert config(made)["discover_hosts.sh"].splitlines() == ["#!/bin/sh", *first]
    made.start("mnist-worker-10", "mnist-worker-2").settle()
    found = config(made)["discover_hosts.sh"]
    assert found.endswith("\n")
    assert found.splitlines() == [
        "#!/bin/sh",
        *first,
        "echo mnist-worker-2.mnist.team.svc",
        "echo mnist-worker-10.mnist.team.svc",
    ]
    made.end("mnist-worker-2", 1).settle()
    assert "worker-2." not in config(made)["discover_hosts.sh"]


def test_a_cluster_domain_is_part_of_host_names():
    """And of where workers look for them."""
    made = world("v2beta1", context=Context(cluster_domain="example.org"))
    assert "mnist-worker-0.mnist.team.svc.example.org slots=1" in config(made)["hostfile"]
    searches = made.pod("mnist-worker-0")["spec"]["dnsConfig"]["searches"]
    assert searches == ["mnist.team.svc.example.org"]


def keys(path, mode):
    """Return volume and mount of the keys."""
    items = [
        {"key": "ssh-privatekey", "path": "id_rsa"},
        {"key": "ssh-publickey", "path": "id_rsa.pub"},
        {"key": "ssh-publickey", "path": "authorized_keys"},
    ]
    secret = {"secretName": "mnist-ssh", "items": items, **({"defaultMode": mode} if mode else {})}
    return {"name": "ssh-auth", "secret": secret}, {"name": "ssh-auth", "mountPath": path}


@pytest.mark.parametrize(("path", "mode"), [("/root/.ssh", 0o600), ("/home/mpi/.ssh", None)])
def test_every_pod_has_the_keys(path, mode):
    """For root they are nobody else's to read; other users read them by their group."""
    made = world("v2beta1", sshAuthMountPath=path)
    volume, mount = keys(path, mode)
    for spec in (made.pod("mnist-worker-0")["spec"], launcher(made)["spec"]):
        assert volume in spec["volumes"]
        assert mount in spec["containers"][0]["volumeMounts"]


def test_a_restart_policy_in_a_template_is_told_of():
    """Of either role, once."""
    text = "Restart policy in pod template overridden by restart policy in replica spec"
    for part in ("launcher", "worker"):
        made = world("v2beta1", **{part: role(restartPolicy="Always")})
        told = [(e.type, e.message) for e in made.said if e.reason == POLICY]
        assert told == [("Warning", text)]


def test_searches_of_the_author_stay():
    """The job's own come after them."""
    mine = {"nameservers": ["10.0.0.1"], "searches": ["mine.example"]}
    made = world("v2beta1", worker=role(dnsConfig=mine))
    assert made.pod("mnist-worker-0")["spec"]["dnsConfig"] == {
        "nameservers": ["10.0.0.1"],
        "searches": ["mine.example", "mnist.team.svc.cluster.local"],
    }


def test_a_worker():
    """It is found by its name and waits for the launcher, unless its author gives a command."""
    made = world("v2beta1")
    pod = made.pod("mnist-worker-1")
    assert pod["metadata"]["labels"] == {
        **LABELS,
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "1",
        "training.kubeflow.org/job-role": "worker",
    }
    spec = pod["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("mnist-worker-1", "mnist")
    assert spec["restartPolicy"] == "Never"
    assert spec["dnsConfig"] == {"searches": ["mnist.team.svc.cluster.local"]}
    (container,) = spec["containers"]
    assert container["command"] == ["/usr/sbin/sshd", "-De"]
    assert environment(container) == [("K_MPI_JOB_ROLE", "worker")]
    assert "ports" not in container
    for own in {"command": ["own"]}, {"args": ["own"]}:
        made = world("v2beta1", worker=role(container=own))
        (container,) = made.pod("mnist-worker-0")["spec"]["containers"]
        assert {key: container[key] for key in ("command", "args") if key in container} == own


def test_on_the_hosts_network_pods_still_find_each_other():
    """By the cluster's DNS."""
    made = world("v2beta1", worker=role(hostNetwork=True), launcher=role(hostNetwork=True))
    for spec in (made.pod("mnist-worker-0")["spec"], launcher(made)["spec"]):
        assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"


ENVIRONMENTS = {
    "OpenMPI": [
        ("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
        ("OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"),
        ("OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=10"),
        ("OMPI_MCA_orte_set_default_slots", "2"),
    ],
    "Intel": [
        ("I_MPI_HYDRA_HOST_FILE", "/etc/mpi/hostfile"),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", "-o ConnectionAttempts=10"),
        ("I_MPI_PERHOST", "2"),
    ],
    "MPICH": [
        ("HYDRA_HOST_FILE", "/etc/mpi/hostfile"),
        ("HYDRA_LAUNCH_EXTRA_ARGS", "-o ConnectionAttempts=10"),
    ],
}
NO_DEVICES = [("NVIDIA_VISIBLE_DEVICES", ""), ("NVIDIA_DRIVER_CAPABILITIES", "")]


@pytest.mark.parametrize("implementation", ENVIRONMENTS)
@pytest.mark.parametrize("doubles", [False, True])
def test_what_mpirun_reads(implementation, doubles):
    """Workers by index, the launcher before them if it works, which alone lets it use GPUs."""
    made = world(
        "v2beta1", slotsPerWorker=2, mpiImplementation=implementation, runLauncherAsWorker=doubles
    )
    assert environment(launcher(made)["spec"]["containers"][0]) == [
        ("K_MPI_JOB_ROLE", "launcher"),
        *ENVIRONMENTS[implementation],
        *([] if doubles else NO_DEVICES),
    ]
    form = "{} slots=2" if implementation == "OpenMPI" else "{}:2"
    first = ("mnist-launcher.mnist.team.svc",) if doubles else ()
    assert config(made)["hostfile"].splitlines() == [form.format(h) for h in (*first, *HOSTS)]


@pytest.mark.parametrize("suspended", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ({"activeDeadlineSeconds": 60}, {"activeDeadlineSeconds": 600}, (600, None)),
        ({"activeDeadlineSeconds": 60, "backoffLimit": 3}, {}, (None, None)),
        ({}, {"backoffLimit": 2}, (None, 2)),
        ({}, {"backoffLimit": 6}, (None, None)),
    ],
)
def test_changed_limits_reach_the_launchers_batch_job(before, after, shown, suspended):
    """A deadline that is raised in time ends no run, also if the job is suspended meanwhile."""
    made = world("v2beta1", policy=before)
    made.job["spec"]["runPolicy"] = after | {"suspend": suspended}
    made.settle()
    made.job["spec"]["runPolicy"] = after
    made.settle()
    spec = made.objects["Job", LAUNCHER]["spec"]
    assert (spec.get("activeDeadlineSeconds"), spec.get("backoffLimit")) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(9_223_372_036, 9_223_372_036), (10**12, None), (2**63 - 1, None)]
)
def test_deadline_that_no_job_reaches_does_not_end_the_launcher(seconds, shown):
    """In nanoseconds it has more than 64 bits, by which Kubernetes would fail the Job at once."""
    made = world("v2beta1", policy={"activeDeadlineSeconds": seconds})
    assert made.objects["Job", LAUNCHER]["spec"].get("activeDeadlineSeconds") == shown


def test_the_launchers_batch_job():
    """With the limits of the run policy, and the files that mpirun reads."""
    policy = {"backoffLimit": 3, "activeDeadlineSeconds": 60}
    made = world("v2beta1", policy=policy)
    spec = dict(made.objects["Job", LAUNCHER]["spec"])
    pod = spec.pop("template")
    assert spec == {**policy, "podReplacementPolicy": "Failed"}
    assert pod["spec"]["restartPolicy"] == "OnFailure"
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (LAUNCHER, "mnist")
    assert {
        "name": "mpi-job-config",
        "configMap": {
            "name": "mnist-config",
            "items": [
                {"key": "hostfile", "path": "hostfile", "mode": 0o444},
                {"key": "discover_hosts.sh", "path": "discover_hosts.sh", "mode": 0o555},
                {"key": "ssh.conf", "path": "ssh.conf", "mode": 0o444},
                {"key": "await-host.sh", "path": "await-host.sh", "mode": 0o555},
            ],
        },
    } in pod["spec"]["volumes"]
    mounts = pod["spec"]["containers"][0]["volumeMounts"]
    assert {"name": "mpi-job-config", "mountPath": "/etc/mpi"} in mounts
    assert "nodeName" not in pod["spec"]


def files(folder):
    """Return the folder with the files of a launcher, which know that they lie there."""
    for name, text in config(world("v2beta1")).items():
        (folder / name).write_text(text.replace("/etc/mpi", str(folder)))
        (folder / name).chmod(0o755)
    return folder


def answering(folder, after):
    """Write a `getent` that knows every name at that call, and a `sleep` that notes how long.

    `after`: 0 for never.
    """
    found = f"[ $(wc -l <{folder}/asked) -ge {after} ]" if after else "false"
    for name, text in {
        "getent": f"echo $* >>{folder}/asked; {found}",
        "sleep": f"echo $1 >>{folder}/slept",
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def awaited(folder, host, env):
    """Return how the wait for a host ends, what it says, and the seconds that it slept."""
    done = subprocess.run(
        [folder / "await-host.sh", host], env=env, capture_output=True, text=True, check=False
    )
    slept = folder / "slept"
    pauses = slept.read_text().split() if slept.exists() else []
    return done.returncode, done.stderr, sum(map(float, pauses))


def test_ssh_waits_for_a_host_of_the_job(tmp_path):
    """Soon after its name is known it is called; the author hears of a long wait, once."""
    folder = files(tmp_path)
    assert awaited(folder, HOSTS[1], answering(folder, 4)) == (0, "", pytest.approx(0.6))
    (folder / "asked").unlink()
    code, said, seconds = awaited(folder, HOSTS[1], answering(folder, 40))
    assert (code, said.count("\n")) == (0, 1)
    assert HOSTS[1] in said
    assert 20 < seconds < 40


def test_ssh_does_not_wait_for_ever(tmp_path):
    """For a worker that never comes it is ten minutes: then ssh says what is wrong."""
    folder = files(tmp_path)
    code, _said, seconds = awaited(folder, HOSTS[0], answering(folder, 0))
    assert code == 1
    assert seconds == pytest.approx(600, rel=0.02)


@pytest.mark.parametrize("host", ["github.com", "mnist-worker-1", "-worker-0", ".*", ""])
def test_ssh_waits_for_no_other_host(tmp_path, host):
    """What a launcher calls besides is none of ours."""
    folder = files(tmp_path)
    assert awaited(folder, host, answering(folder, 0)) == (1, "", 0)
    assert not (folder / "asked").exists()


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH")
@pytest.mark.parametrize(("host", "attempts"), [(HOSTS[0], 10), ("github.com", 1)])
def test_ssh_takes_the_options(tmp_path, host, attempts):
    """As OpenSSH reads them, which runs what they name before it connects."""
    folder = files(tmp_path)
    command = ["ssh", "-F", folder / "ssh.conf", "-G", host]
    done = subprocess.run(
        command, env=answering(folder, 3), capture_output=True, text=True, check=True
    )
    assert f"connectionattempts {attempts}\n" in done.stdout
    assert (folder / "asked").exists() == (attempts == 10)


@pytest.mark.parametrize(
    ("mounted", "there"),
    [("/etc/ssh/ssh_config.d", False), ("/etc/ssh/", False), ("/etc", False), ("/etc/s", True)],
)
def test_a_volume_of_the_author_goes_before_the_options(mounted, there):
    """Nothing can be mounted into what is read-only: his job runs as it did."""
    volume = {"name": "own", "configMap": {"name": "own"}}
    leads = role(
        volumes=[volume], container={"volumeMounts": [{"name": "own", "mountPath": mounted}]}
    )
    mounts = launcher(world("v2beta1", launcher=leads))["spec"]["containers"][0]["volumeMounts"]
    assert [m["subPath"] for m in mounts if "subPath" in m] == ["ssh.conf"] * there


@pytest.mark.parametrize(
    ("doubles", "leads", "workers"), [(False, None, ["0", "1"]), (True, "0", ["1", "2"])]
)
def test_index_labels(doubles, leads, workers):
    """A launcher that works has the first index; of fewer workers the last ones are deleted."""
    made = world("v2beta1", workers=3, runLauncherAsWorker=doubles)
    made.scale(2).settle()
    assert made.names() == ["mnist-worker-0", "mnist-worker-1"]
    assert "worker-2" not in config(made)["hostfile"]
    index = "training.kubeflow.org/replica-index"
    labels = launcher(made)["metadata"]["labels"]
    assert labels.get(index) == leads
    assert labels["training.kubeflow.org/job-role"] == "launcher"
    assert labels["training.kubeflow.org/replica-type"] == "launcher"
    pods = [made.pod(f"mnist-worker-{i}")["metadata"]["labels"][index] for i in (0, 1)]
    assert pods == workers


def test_the_launcher_may_wait_for_its_workers():
    """Until all of them are ready, those that run and are not among them."""
    made = world("v2beta1", launcherCreationPolicy="WaitForWorkersReady")
    assert ("Job", LAUNCHER) not in made.objects
    made.start()
    made.pod("mnist-worker-1")["status"]["conditions"] = []
    made.settle()
    assert ("Job", LAUNCHER) not in made.objects
    made.start().settle()
    assert ("Job", LAUNCHER) in made.objects


@pytest.mark.parametrize("clean", ["None", "All"])
def test_the_batch_job_may_go_once_the_end_is_written(clean):
    """Not before: an operator that was away would find no launcher, and make another one."""
    policy = {"ttlSecondsAfterFinished": 9, "cleanPodPolicy": clean}
    first = World(mpijob("v2beta1", policy=policy), secrets=SECRETS).step()
    (batch,) = (a.doc for a in first if isinstance(a, Create) and a.kind == "Job")
    assert "ttlSecondsAfterFinished" not in batch["spec"]
    made = world("v2beta1", policy=policy)
    made.close().step()
    assert made.conditions[-1] == "Succeeded T"
    assert "ttlSecondsAfterFinished" not in made.objects["Job", LAUNCHER]["spec"]
    made.settle()
    left = [found["spec"]["ttlSecondsAfterFinished"] for found in made.of("Job")]
    assert left == [9]


@pytest.mark.parametrize("backend", [gang.EMBEDDED, gang.SCHEDULER_PLUGINS])
def test_a_gang_that_awaits_its_launcher_lacks_nobody(backend):
    """It is whole once the launcher runs; only afterwards can it lose a member."""
    made = World(
        mpijob("v2beta1", launcherCreationPolicy="WaitForWorkersReady"),
        backend=backend,
        secrets=SECRETS,
    )
    nodes = dict.fromkeys(["mnist-worker-0", "mnist-worker-1", LAUNCHER], "n0")
    made.extra = {"placements": nodes} if backend.embedded else {}
    made.settle()
    assert made.objects["PodGroup", "mnist"]["spec"]["minMember"] == 2
    made.start()
    for pod in made.of("Pod"):
        pod["spec"]["nodeName"] = "n0"
    made.step()
    assert ("Job", LAUNCHER) in made.objects
    assert made.status["gang"]["state"] == "Placed"
    assert made.settle().status["gang"]["state"] == "Placed"
    made.launch()
    assert made.settle().status["gang"]["state"] == "Running"
    assert made.status["gang"]["minMember"] == 3
    made.lose("mnist-worker-1")
    made.extra = {"placements": {}} if backend.embedded else {}
    assert made.settle().status["gang"]["state"] == "Degraded"


def test_the_launchers_pod_belongs_to_the_gang():
    """By the link in the template of the batch Job, as the workers."""
    made = world("v2beta1", backend=gang.KUBE_BATCH)
    assert made.objects["PodGroup", "mnist"]["spec"]["minMember"] == 3
    for found in (launcher(made), made.pod("mnist-worker-0")):
        notes = found["metadata"]["annotations"]
        assert notes["scheduling.k8s.io/group-name"] == "mnist"
        assert found["spec"]["schedulerName"] == "kube-batch"


@pytest.mark.parametrize("backend", [gang.SCHEDULER_PLUGINS, gang.KUBE_BATCH, gang.KUBERNETES])
def test_the_launchers_pod_is_counted_under_other_gang_schedulers(backend):
    """Though the job is not its owner: with it the gang is whole."""
    made = world("v2beta1", backend=backend)
    made.start()
    made.launch()
    assert made.settle().status["gang"]["summary"] == "3/3 running"
    assert made.status["gang"]["state"] == "Running"


def test_a_restart_of_the_whole_gang_is_left_to_the_batch_job():
    """The annotation changes no restart policy, and its author is told so."""
    document = mpijob(
        "v2beta1", launcher=role(policy="OnFailure"), worker=role(policy="OnFailure")
    )
    document["metadata"]["annotations"] = {"muster.kubeflow.org/restart": "gang"}
    made = World(document, secrets=SECRETS).settle()
    pods = [made.objects["Job", LAUNCHER]["spec"]["template"], *made.of("Pod")]
    assert {pod["spec"]["restartPolicy"] for pod in pods} == {"OnFailure"}
    (told,) = [emit for emit in made.said if emit.reason == "RestartIgnored"]
    assert told.type == "Warning"
    assert "has no effect on an MPIJob of v2beta1" in told.message


def test_defaults():
    """One launcher alone, restarted by its batch Job."""
    made = world("v2beta1", workers=None)
    assert made.names() == []
    assert launcher(made)["spec"]["restartPolicy"] == "OnFailure"
    assert config(made)["hostfile"] == ""


@pytest.mark.parametrize("keys", [SECRETS, {}], ids=["with-keys", "empty"])
def test_a_secret_without_owner_is_not_adopted(keys):
    """Who wrote it may know the keys, and would be let in by all pods of the job."""
    made = World(mpijob("v2beta1"), secrets=SECRETS)
    labels = {**LABELS, "app": "mnist"}
    metadata = {"name": "mnist-ssh", "namespace": "team", "labels": labels, "uid": "theirs"}
    made.objects["Secret", "mnist-ssh"] = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "data": dict(keys),
    }
    made.settle()
    assert made.objects["Secret", "mnist-ssh"]["metadata"] == metadata
    assert made.objects["Secret", "mnist-ssh"]["data"] == keys
    text = 'Resource "mnist-ssh" of Kind "Secret" already exists and is not managed by MPIJob'
    assert (made.status["state"], made.status["reason"]) == ("Blocked", text)
    assert made.names() == []
    assert "ErrResourceExists" in made.reasons()


def test_missing_permissions_are_told():
    """On the job; nothing is created, and it goes on once they are there."""
    lacking = "the operator's account may not create secrets"
    made = world("v2beta1", context=Context(lacking={"mpi-operator": lacking}))
    assert (made.status["state"], made.status["reason"]) == ("Blocked", lacking)
    assert "PermissionMissing" in made.reasons()
    assert not made.objects
    made.context = Context()
    made.settle()
    assert ("Job", LAUNCHER) in made.objects
    assert made.status["state"] == "Created"


@pytest.mark.parametrize(("limit", "shown"), [(None, ["mnist-launcher"]), (60, [])])
def test_the_clock_of_a_launcher_does_not_run_while_its_gang_waits(limit, shown):
    """Pods may be shown before they have a node, a batch Job with a deadline may not."""
    policy = {} if limit is None else {"activeDeadlineSeconds": limit}
    made = World(
        mpijob("v2beta1", policy=policy), backend=gang.EMBEDDED, secrets=SECRETS,
        placements={"mnist-worker-0": "", "mnist-launcher": ""},
    ).settle()  # fmt: skip
    assert made.names("Job") == shown
    assert made.names() == ["mnist-worker-0"]
    made.extra["placements"] = {"mnist-worker-1": "n1", "mnist-launcher": "n0"}
    assert made.settle().names("Job") == ["mnist-launcher"]


VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"


@pytest.mark.parametrize(
    ("version", "backend", "policy", "expected"),
    [
        ("v2beta1", gang.VOLCANO, {}, "research"),
        ("v2beta1", gang.VOLCANO, {"queue": "batch"}, "batch"),
        ("v2beta1", gang.KUBE_BATCH, {}, "default"),
        ("v1", gang.VOLCANO, {}, "default"),
    ],
)
def test_annotation_names_the_queue_of_volcano(version, backend, policy, expected):
    """Only mpi-operator reads the annotation, and only where Volcano starts the gang."""
    document = mpijob(version, policy={"schedulingPolicy": policy})
    document["metadata"]["annotations"] = {VOLCANO_QUEUE: "research"}
    made = World(document, backend=backend, secrets=SECRETS).settle()
    assert made.objects["PodGroup", "mnist"]["spec"]["queue"] == expected
