# SPDX-License-Identifier: Apache-2.0
"""What admission makes of pods is found out before the first of them is placed."""

import asyncio
import copy
import time

import pytest

from muster.allocator import dryrun, members
from muster.api import edge
from muster.api.backoff import Backoff
from muster.cluster import dryrun as answers
from muster.controller.model import Context
from muster.frameworks import FRAMEWORKS, load
from muster.frameworks.mpi_v1 import MPI_V1
from muster.kube.client import ApiError
from muster.scheduler import policy
from support.apiserver.memory import of_kind
from support.rehearsal.allocator_loop import KEY, PATIENCE, Looping, Silence, running


class Server(Silence):
    """An API server that answers dry runs by `admit`, and writes never."""

    def __init__(self):
        """Change nothing."""
        self.asked, self.services = [], []
        self.admit = self.admit_service = lambda document: document

    async def dry_run(self, path, body, _urgency):
        """Return what would be stored."""
        if body["kind"] == "Service":
            self.services.append(body["metadata"]["name"])
            return self.admit_service(body)
        self.asked.append((path, body))
        await asyncio.sleep(0)
        found = self.admit(copy.deepcopy(body))
        return await found if asyncio.iscoroutine(found) else found


class Story(Looping):
    """A loop with a node of each kind."""

    def __init__(self, *, tries=True):
        """Begin with the nodes."""
        disks = {"n1": "hdd", "n2": "ssd"}
        nodes = {name: {"cpu": 4, "labels": {"disk": disk}} for name, disk in disks.items()}
        self.lacking = {}
        context = (lambda _namespace: Context(lacking=self.lacking)) if tries else None
        super().__init__(Server(), nodes, context=context)

    def create(self, *, name="mnist", namespace="team", workers=2, age=0, **template):
        """Show a job; older ones come first."""
        created, uid = edge.format_time(time.time() - age), f"uid-{namespace}-{name}"
        more = {"namespace": namespace, "creationTimestamp": created, "uid": uid}
        return self.show_job(name, workers, template=template, **more)

    def worker(self, index, **more):
        """Show a pod of the first job that runs on its node."""
        self.show_worker(f"mnist-worker-{index}", "mnist", "uid-team-mnist", **more)

    async def is_full(self):
        """Show that the first job fills both nodes; others may preempt it."""
        self.policy, self.priorities = policy.parse({"actions": "allocate, preempt"}), {"high": 10}
        self.create(workers=8)
        await self.until(self.placements)
        for index in range(8):
            self.worker(index, node=f"n{1 + index % 2}", phase="Running")

    def refusal(self, key=KEY):
        """Return what is told to the job."""
        return self.store.jobs.refusal(self.store.jobs.get(key), time.time())

    def nodes(self, key=KEY):
        """Return the nodes of the pods that may be created, without those for an autoscaler."""
        return set(self.placements(key).values()) - {""}

    def asks(self, namespace):
        """Return the pods of a namespace that were tried."""
        return [pod for _, pod in self.server.asked if pod["metadata"]["namespace"] == namespace]

    async def cycles(self, count=1):
        """Return when so many more cycles have been."""
        async with asyncio.timeout(PATIENCE):
            for _ in range(count):
                before = self.loop.cycles
                self.loop.trigger()
                while self.loop.cycles == before:  # noqa: ASYNC110 -- cycles tell nobody
                    await asyncio.sleep(0.01)


def with_spec(**more):
    """Return an admission that puts this into each pod's spec."""

    def admit(pod):
        pod["spec"] |= more
        return pod

    return admit


def raising(*what):
    """Return an admission that fails so."""

    def admit(_pod):
        raise ApiError(*what, None)

    return admit


@pytest.mark.parametrize(
    ("spec", "node"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, "n2"),
        ({"schedulingGates": [{"name": "example.com/wait"}]}, ""),
    ],
)
async def test_fields_that_admission_adds_count_as_those_of_the_template(spec, node):
    """The gang goes where its pods will have to; pods with gates are created without a node."""
    async with running(Story()) as s:
        s.server.admit = with_spec(**spec)
        s.create()
        await s.until(s.placements)
        assert set(s.placements().values()) == {node}
        assert bool(s.store.columns.assumed) is bool(node)


async def test_completed_index_asks_for_no_dry_run():
    """Nothing is to be created of a role whose missing pod has succeeded."""
    async with running(Story()) as s:
        done = {"replicaStatuses": {"Worker": {"succeeded": 1, "completedIndexes": "0"}}}
        document = {**s.create(age=60), "status": done}
        s.worker(1, node="n1", phase="Running")
        s.put(document)
        await s.cycles(2)
        assert s.asks("team") == []


async def test_successor_of_a_failed_pod_is_tried():
    """The failed pod stays until its successor is created, of which admission may make more."""
    async with running(Story()) as s:
        document = s.create(age=60)
        document["spec"]["tfReplicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure"
        s.put(document)
        for index, phase in enumerate(("Failed", "Running")):
            s.worker(index, node="n1", phase=phase)
        await s.cycles(2)
        assert len(s.asks("team")) == 1


async def test_gang_that_lost_a_member_tries_the_roles_of_its_peers_again():
    """It restarts as a whole; admission may reject what it accepted before the loss."""
    async with running(Story()) as s:
        more = {"annotations": {"muster.kubeflow.org/restart": "gang"}, "uid": "uid-team-mnist"}
        ran = {"gang": {"state": "Running", "minMember": 3}}
        document = s.show_job("mnist", 2, status=ran, **more)
        roles = document["spec"]["tfReplicaSpecs"]
        roles["Chief"] = {**roles["Worker"], "replicas": 1}
        s.put(document)
        await s.until(s.placements)
        for name in ("chief-0", "worker-0", "worker-1"):
            s.show_worker(f"mnist-{name}", "mnist", more["uid"], node="n1", phase="Running")
        await s.cycles(2)
        assert len(s.server.asked) == 2
        s.server.admit = lambda pod: rejecting(pod) if "chief" in pod["metadata"]["name"] else pod
        lost = s.store.children.pod("team", "mnist-worker-1")
        s.store.gone("Pod", "team", lost.name, lost.uid)
        await s.cycles(2)
        await s.until(s.refusal)
        assert s.refusal().name == "mnist-chief-0"
        assert len(s.server.asked) == 4


async def test_one_request_for_a_template():
    """However many jobs there are; another namespace, or another template, is another question.

    One Service speaks for those of its namespace.
    """
    async with running(Story()) as s:
        jobs = [s.create(name=f"j{i}", workers=1)["metadata"]["name"] for i in range(3)]
        for name in jobs:
            await s.until(lambda name=name: s.placements(f"TFJob/team/{name}"))
        s.create(name="late", workers=1)
        await s.until(lambda: s.placements("TFJob/team/late"))
        assert len(s.server.asked) == 1
        s.create(namespace="other", workers=1)
        s.create(workers=1, priority=7)
        await s.until(lambda: s.placements("TFJob/other/mnist") and s.placements())
        paths = sorted(path for path, _ in s.server.asked)
        assert paths == [f"/api/v1/namespaces/{name}/pods" for name in ("other", "team", "team")]
        assert len(s.server.services) == 2


async def test_what_is_sent():
    """A pod as it would be created, on no node."""
    async with running(Story()) as s:
        s.worker(0, node="n1")
        s.create(nodeName="n2")
        await s.until(s.placements)
        ((_, pod),) = s.server.asked
        assert pod["metadata"]["name"] == "mnist-worker-1"
        assert "nodeName" not in pod["spec"]
        assert pod["metadata"]["ownerReferences"][0]["uid"] == "uid-team-mnist"
        assert any(e["name"] == "TF_CONFIG" for e in pod["spec"]["containers"][0]["env"])


FORBIDDEN = 'pods "mnist-worker-0" is forbidden: '
NO_ACCOUNT = 'error looking up service account team/none: serviceaccount "none" not found'
REJECTED = (
    (403, "Forbidden", 'admission webhook "a" denied the request: no'),
    (422, "Invalid", "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"),
    (403, "Forbidden", FORBIDDEN + 'violates PodSecurity "restricted:latest"'),
    (403, "Forbidden", FORBIDDEN + "minimum memory usage per Container is 64Mi"),
    (403, "Forbidden", FORBIDDEN + NO_ACCOUNT),
    (403, "Forbidden", FORBIDDEN + "no PriorityClass with name high was found"),
    (403, "Forbidden", FORBIDDEN + "failed quota: q: must specify limits.cpu"),
    (400, "BadRequest", "Pod in version v1 cannot be handled as a Pod: unknown field"),
    (404, "NotFound", 'runtimeclasses.node.k8s.io "gvisor" not found'),
    (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728"),
    (422, "Invalid", 'Pod "p" is invalid: spec.containers[0].ports: Invalid value: 99999'),
    (500, "InternalError", 'failed calling webhook "a": connection refused'),
)


@pytest.mark.parametrize(("code", "reason", "message"), REJECTED)
async def test_gang_whose_pod_is_rejected_is_not_placed(code, reason, message):
    """No pod of the gang is placed, and the API server is asked again after ten seconds."""
    async with running(Story()) as s:
        s.server.admit = raising(code, reason, message)
        s.create()
        await s.until(s.refusal)
        found = s.refusal()
        assert (found.kind, found.name) == ("Pod", "mnist-worker-0")
        assert (found.message, found.reason) == (message, reason)
        assert found.until - time.time() == pytest.approx(10.0, abs=1.0)
        s.create(name="alike")
        await s.until(lambda: s.refusal("TFJob/team/alike"))
        assert s.refusal("TFJob/team/alike").message == message.replace("mnist", "alike")
        await s.cycles(2)
        assert not s.placements()
        assert not s.placements("TFJob/team/alike")
        assert len(s.server.asked) == 1


OTHER = "TFJob/team/other"
NO_SERVICES = (403, "Forbidden", 'admission webhook "a" denied the request: no Services')
rejecting = raising(*NO_SERVICES)


async def test_only_a_gang_without_pods_waits_for_a_service_that_is_rejected():
    """Its members would not find each other. One that runs replaces lost pods."""
    async with running(Story()) as s:
        s.server.admit_service = rejecting
        s.create(name="other")
        await s.until(lambda: s.refusal(OTHER))
        found = s.refusal(OTHER)
        told = found.kind, found.name, found.message
        assert told == ("Service", "other-worker-0", NO_SERVICES[2])
        await s.cycles(2)
        assert not s.placements(OTHER)
        s.worker(0, node="n1")
        s.create()
        await s.until(s.placements)
        assert s.server.services == ["other-worker-0"]
        # Also if running pods are to go for the lost one.
        assert s.loop._jobs.are_tried(KEY, time.time(), moves=False)


def test_missing_service_account_that_the_controller_creates_rejects_no_pod():
    """The dry run of an MPIJob's launcher may come before its ServiceAccount."""
    document = of_kind("MPIJob", Launcher=1, Worker=1)
    job = load(MPI_V1, {**document, "apiVersion": "kubeflow.org/v1"})
    for account, rejected in (("mnist-launcher", False), ("mnist-launcher-2", True)):
        error = ApiError(403, "Forbidden", f'serviceaccount "{account}" not found', None)
        assert dryrun.is_rejected(job, error) is rejected


async def test_a_policy_that_changes_its_mind(monkeypatch):
    """After the pause, which grows, the gang is placed."""
    monkeypatch.setattr(dryrun, "after_refusal", lambda *_of: Backoff(0.2, 1.0))
    seen = []

    def admit(pod):
        seen.append(time.time())
        return pod if len(seen) == 3 else rejecting(pod)

    async with running(Story()) as s:
        s.server.admit = admit
        s.create()
        await s.until(s.placements)
        first, second, third = seen
        assert (second - first >= 0.2, third - second >= 0.4) == (True, True)


def broken(_pod):
    """Do not answer at all."""
    raise TimeoutError


@pytest.mark.parametrize(
    "admit",
    [
        raising(400, "BadRequest", 'admission webhook "a" does not support dry run'),
        raising(403, "Forbidden", 'pods "p" is forbidden: exceeded quota: few'),
        raising(403, "Forbidden", 'pods is forbidden: User "muster" cannot create resource'),
        raising(401, "Unauthorized", "Unauthorized"),
        raising(403, "Forbidden", "no new content in namespace team: it is being terminated"),
        raising(404, "NotFound", 'namespaces "team" not found'),
        raising(404, "NotFound", "the server could not find the requested resource"),
        raising(409, "AlreadyExists", 'pods "mnist-worker-0" already exists'),
        raising(500, "InternalError", "etcdserver: leader changed"),
        broken,
        lambda _pod: asyncio.sleep(60),
        lambda _pod: {"metadata": {}},
    ],
)
async def test_what_cannot_be_found_out(admit, monkeypatch):
    """The template counts as it is written, and it is not asked again at once."""
    monkeypatch.setattr(dryrun, "PATIENCE", 0.3)
    async with running(Story()) as s:
        s.server.admit = admit
        s.create()
        await s.until(s.placements)
        assert s.refusal() is None
        s.create(name="other", workers=1)
        await s.until(lambda: s.placements(OTHER))
        assert len(s.server.asked) == 1


URGENT = "TFJob/team/urgent"


@pytest.mark.parametrize(
    "admit",
    [
        raising(403, "Forbidden", 'pods is forbidden: User "muster" cannot create resource'),
        raising(500, "InternalError", "etcdserver: leader changed"),
        broken,
        lambda _pod: {"metadata": {}},
        None,
    ],
)
async def test_running_pods_stay_where_it_is_not_known_whether_others_are_created(admit):
    """The preemptor is told why, and starts once the server accepts its pods."""
    async with running(Story()) as s:
        await s.is_full()
        if admit is None:
            s.lacking[FRAMEWORKS["TFJob"].operator.name] = "this account may not watch nodes"
        else:
            s.server.admit = lambda sent: admit(sent) if sent["kind"] == "Pod" else sent
        s.create(name="urgent", priorityClassName="high")
        await s.until(lambda: s.refusal(URGENT))
        await s.cycles(2)
        memories = map(s.loop.gangs.memory, (URGENT, KEY))
        assert not any(it and (it.nominated or it.leaving) for it in memories)
        s.lacking.clear()
        s.server.admit = lambda sent: sent
        s.store.dry_runs.changed("team")
        s.store.jobs.retry_refused("team")
        await s.until(lambda: s.loop.verdict(s.store.jobs.get(URGENT)) is not None)
        assert s.loop.verdict(s.store.jobs.get(URGENT)).state == "Reserved"


async def test_room_that_was_made_is_kept_though_dry_runs_fail_then(monkeypatch):
    """The evicted pods have lost their work for it."""
    monkeypatch.setattr(members, "TRIED_SECONDS", 1.0)
    async with running(Story()) as s:
        await s.is_full()
        document = s.create(name="urgent", priorityClassName="high")
        await s.until(lambda: s.loop.verdict(s.store.jobs.get(URGENT)))
        await asyncio.sleep(0.6)
        status = {"gang": {"state": "Reserved", "reason": "", "scheduler": "muster"}}
        s.put({**document, "status": status})
        while not s.loop.gangs.memory(KEY).leaving:
            await s.cycles()
        s.server.admit = raising(500, "InternalError", "etcdserver: leader changed")
        until = time.time() + 1.2
        while time.time() < until:
            await s.cycles()
        assert s.refusal(URGENT) is None
        assert s.loop.gangs.memory(URGENT).nominated


@pytest.fixture
def _unhurried(monkeypatch):
    """Let no wait for an answer expire on a busy machine."""
    monkeypatch.setattr(dryrun, "PATIENCE", PATIENCE)


def late(answered, admit=lambda pod: pod):
    """Return an admission that waits for the event with the pods of one namespace."""

    async def slow(pod):
        await answered.wait()
        return admit(pod)

    return lambda pod: slow(pod) if pod["metadata"]["namespace"] == "team" else pod


async def test_no_pod_gets_a_node_before_a_slow_refusal():
    """The API server needs seconds to refuse a pod with thousands of invalid values."""
    async with running(Story()) as s:

        async def refused(pod):
            await asyncio.sleep(2.5)
            return raising(422, "Invalid", "pod is invalid: spec.resourceClaims[0]")(pod)

        s.server.admit = refused
        s.create()
        await s.until(lambda: s.loop.verdict(s.store.jobs.get(KEY)))
        waits = "the API server has not answered the dry run of its pods"
        assert waits in s.loop.verdict(s.store.jobs.get(KEY)).message
        await s.until(s.refusal)
        assert not s.placements()


@pytest.mark.usefixtures("_unhurried")
async def test_nobody_waits_for_another_ones_webhook():
    """A cycle goes on without the gang whose answer takes its time, and comes when it is there."""
    async with running(Story()) as s:
        answered = asyncio.Event()
        s.server.admit = late(answered, with_spec(nodeSelector={"disk": "ssd"}))
        s.create()
        s.create(namespace="quick")
        await s.until(lambda: s.nodes("TFJob/quick/mnist"))
        assert not s.nodes()
        answered.set()
        await s.until(s.nodes)
        assert s.nodes() == {"n2"}


QUICK = "TFJob/quick/small"


@pytest.mark.usefixtures("_unhurried")
async def test_gangs_whose_answer_takes_its_time_keep_no_nodes():
    """A namespace with a new template for each answer, none of which is taken, stops nobody."""
    async with running(Story()) as s:

        async def deny():
            await asyncio.sleep(2 * dryrun.AT_ONCE)  # so that no cycle waits for it any more
            number = len(s.server.asked)
            s.create(name=f"mnist-{number}", workers=8, age=60, priority=number)
            raise ApiError(403, "Forbidden", 'admission webhook "a" denied the request', None)

        def admit(pod):
            return deny() if pod["metadata"]["namespace"] == "team" else pod

        s.server.admit = admit
        s.create(workers=8, age=60)
        s.create(name="small", namespace="quick")
        await s.until(lambda: s.nodes(QUICK))


async def test_the_answer_stands_against_what_is_worked_out_here():
    """A limit range that seems to forbid the pods is left to the API server."""
    spec = {"limits": [{"type": "Container", "min": {"cpu": "2"}}]}
    limits = {"metadata": {"name": "l", "namespace": "team"}, "spec": spec}
    async with running(Story()) as s:
        s.put({"kind": "LimitRange", **limits})
        s.create()
        await s.until(s.placements)
    async with running(Story(tries=False)) as s:
        s.put({"kind": "LimitRange", **limits})
        s.create()
        await s.until(lambda: s.loop.verdict(s.store.jobs.get(KEY)))
        assert s.loop.verdict(s.store.jobs.get(KEY)).reason == "ExceedsResourceQuota"
        assert not s.server.asked


HERE = {"metadata": {"name": "team", "namespace": "team"}}
CHANGES = {
    "limits": {"kind": "LimitRange", "spec": {"limits": []}, **HERE},
    "runtime": {"kind": "RuntimeClass", "handler": "h"},
    "space": {"kind": "Namespace"},
    "class": {"kind": "PriorityClass", "value": 5},
    "account": {"kind": "ServiceAccount", **HERE},
    "quota": {"kind": "ResourceQuota", "spec": {"hard": {"limits.cpu": "90"}}, **HERE},
}


@pytest.mark.parametrize("change", CHANGES)
async def test_what_changes_admission_is_asked_about_again(change):
    """For gangs that have pods to create; those that are whole keep what is known."""
    async with running(Story()) as s:
        s.server.admit = with_spec(nodeSelector={"disk": "ssd"})
        s.create()
        s.create(name="large", workers=9)
        await s.until(s.placements)
        for index in range(2):
            s.worker(index, node="n2")
        await s.cycles()
        assert len(s.server.asked) == 1
        s.server.admit = with_spec(nodeSelector={"disk": "hdd"})
        s.put({"metadata": {"name": "team"}, **CHANGES[change]})
        await s.cycles(2)
        assert len(s.server.asked) == 2
        shape = s.loop.gangs.memory(KEY).facts.tasks[0].shape
        assert shape.selector in ((("disk", "hdd"),), (("disk", "ssd"),))
        held = s.loop.gangs.memory(KEY).input.roles[0].held
        assert [node for _, node in held] == ["n2", "n2"]


@pytest.mark.parametrize("change", CHANGES)
async def test_rejected_gang_is_tried_at_once_when_admission_changes(change):
    """The gang is placed without the rest of its back-off."""
    async with running(Story()) as s:
        s.server.admit = raising(403, "Forbidden", FORBIDDEN + NO_ACCOUNT)
        s.create()
        await s.until(s.refusal)
        s.server.admit = lambda pod: pod
        s.put({**CHANGES["account"], "metadata": {"name": "team", "namespace": "other"}})
        assert s.refusal()
        s.put({"metadata": {"name": "team"}, **CHANGES[change]})
        assert s.refusal() is None
        await s.until(s.placements)
        assert len(s.server.asked) == 2


async def test_rejection_is_void_when_admission_changed_meanwhile():
    """The change may have removed the cause, so the API server is asked again at once."""
    async with running(Story()) as s:

        def admit(pod):
            if len(s.server.asked) > 1:
                return pod
            s.put({"metadata": {"name": "high"}, **CHANGES["class"]})
            raise ApiError(403, "Forbidden", FORBIDDEN + "no PriorityClass", None)

        s.server.admit = admit
        s.create()
        await s.until(s.placements)
        assert s.refusal() is None


@pytest.mark.parametrize(("reason", "asked"), [("CreationRefused", 1), ("Blocked", 0)])
async def test_blocked_job_is_tried_again_unless_another_object_blocks_it(reason, asked):
    """A rejected pod has a back-off; the end of another object is the controller's to find.

    Until then no running pods are evicted for the job.
    """
    async with running(Story()) as s:
        document = s.create()
        gang = {"state": "Waiting", "scheduler": "muster", "reason": reason}
        document["status"] = {"state": "Blocked", "gang": gang}
        s.put(document)
        await s.cycles(2)
        assert len(s.server.asked) == asked
        assert s.loop._jobs.are_tried(KEY, time.time(), moves=False) == bool(asked)


def test_answers_do_not_pile_up():
    """The oldest go, and those that have expired; an answer is good for a while.

    Nothing is stored of a deleted namespace, and its number of changes does not recur.
    """
    known = answers.DryRuns()
    for index in range(answers.MOST + 1):
        known.put(("team", str(index)), answers.Answer(10.0))
    assert known.get(("team", "0"), 1.0) is None
    assert known.get(("team", "1"), 1.0) is not None
    assert known.get(("team", "1"), 10.0) is None
    own = answers.Answer(10.0)
    assert known.get(("team", "0"), 1.0, own) is own
    known.changed("other")
    assert known.get(("team", "1"), 1.0) is not None
    known.changed("team")
    assert known.get(("team", "1"), 1.0, own) is None
    known.put(("team", "1"), answers.Answer(10.0, under=known.changes("team")))
    assert known.get(("team", "1"), 1.0) is not None
    known.forget("team")
    assert "team" not in known._changes_in
    known.changed("team")
    assert known.get(("team", "1"), 1.0) is None
    known.put(("team", "1"), answers.Answer(10.0, under=known.changes("team")))
    known.changed()
    assert known.get(("team", "1"), 1.0) is None
    known = answers.DryRuns()
    for now in range(0, 6000, 60):
        known.put(("team", str(now)), answers.Answer(now + answers.LIFETIME))
    assert len(known._answers) == answers.LIFETIME / 60


def test_no_more_of_a_pod_is_kept_than_counts():
    """Its environment is not; a pod that is large all the same counts as it is written."""
    sent = {"metadata": {}, "spec": {}}
    large = [{"name": "E", "value": "x" * answers.LARGEST}]
    port = {"containerPort": 1, "hostPort": 1}
    container = {"name": "c", "env": large, "ports": [port], "resources": {"limits": {"cpu": 1}}}
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    spec = {"containers": [container], "initContainers": [{"restartPolicy": "Always"}]}
    spec["volumes"] = [claim, {"name": "c", "configMap": {"name": "x"}}]
    stored = {"metadata": {}, "spec": spec}
    assert answers.shown(sent, stored, 0.0).applied({})["spec"] == {
        "containers": [{"ports": [port], "resources": {"limits": {"cpu": 1}}}],
        "initContainers": [{"restartPolicy": "Always"}],
        "volumes": [claim],
    }
    selector = {f"label-{i}": "v" * 63 for i in range(1000)}
    stored = {"metadata": {}, "spec": {"nodeSelector": selector}}
    assert not answers.shown(sent, stored, 0.0).stored
