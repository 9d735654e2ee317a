# SPDX-License-Identifier: Apache-2.0
"""What costs more than its length, though anybody may write it as long as he likes.

Each list of a job's document, four times as long, takes about four times as long from the
document to the decision and to the pods; so do four times as many jobs. The time is that of the
processor, so that it hangs on nothing else on the machine.
"""

import gc
import json
import time

import pytest
from hypothesis import settings

from muster import gang
from muster.allocator.members import GangSettings
from muster.api import edge
from muster.cluster.gangs import GangRules
from muster.frameworks import FRAMEWORKS
from muster.scheduler import cycle, policy
from muster.store.store import Store
from support.apiserver.memory import START, World, tfjob
from support.builders.long_lists import KEY, LISTS, expressions, labels
from support.builders.scheduler import make_node
from support.rehearsal import call_count
from support.rehearsal.gang_tracking import Shown, evaluated, tracked

TIMES, AT_MOST = 4, 6.0
NODES = 8
LEAST, MOST = 0.01, 8_000
"""Seconds that tell how it grows, and the longest list that is tried for so many."""
TRIES = 30
ITEMS, LINES_AT_MOST = 15, 4.1

MEETING = ("pods to be near", "pods to keep away from", "spread", "host ports", "claims")
"""Those by which jobs meet each other: of others there is enough in the night."""
NIGHT = settings().max_examples > settings.get_profile("default").max_examples
OF_JOBS = {
    "labels of the job": lambda n: {"metadata": {"labels": labels(n)}},
    "annotations of the job": lambda n: {"metadata": {"annotations": labels(n)}},
    "least resources": lambda n: {
        "spec": {
            "runPolicy": {
                "schedulingPolicy": {"minResources": {f"{KEY}{i}": "1" for i in range(n)}}
            }
        }
    },
    "unknown roles": lambda n: {"spec": {"tfReplicaSpecs": {f"R{i}": {} for i in range(n)}}},
    "conditions": lambda n: {
        "status": {"conditions": [{"type": f"C{i}", "status": "True"} for i in range(n)]}
    },
}


def fields(n):
    """Return the fields of objects of all kinds, with lists of that length."""
    names, amounts = [f"s{i}" for i in range(n)], {f"{KEY}{i}": "1" for i in range(n)}
    cpu = {**amounts, "cpu": "64"}
    taints = [{"key": name, "effect": "NoSchedule", "operator": "Exists"} for name in names]
    selector = {"matchLabels": labels(n), "matchExpressions": expressions(n)}
    terms = [{"matchExpressions": expressions(1)}] * n
    node = {"taints": taints, "drivers": [{"name": n, "topologyKeys": ["k"]} for n in names]}
    containers = [{"name": "s0", "image": "i"}]
    pod = {"nodeName": "n1", "containers": containers, "tolerations": taints, "finalizers": names}
    volume = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}, "capacity": cpu}
    claim = {"selector": selector, "resources": {"requests": amounts}}
    limits = {"limits": [{"type": "Container", "default": {"cpu": "1"}}] * n, "hard": cpu}
    queue = {"capability": amounts, "namespaceSelector": selector}
    ends = [{"name": name, "state": {"terminated": {"exitCode": 1}}} for name in names]
    said = {"conditions": [{"type": name, "status": "True"} for name in names]}
    sizes = {"allocatable": cpu, "capacity": cpu, "hard": cpu, "used": cpu}
    return {
        "spec": {**tfjob()["spec"], **node, **pod, **volume, **claim, **limits, **queue},
        "status": {"phase": "Running", "containerStatuses": ends, **said, **sizes},
        "data": labels(n),
        "value": 1,
        "imagePullSecrets": [{"name": name} for name in names],
        "scheduling": {"nodeSelector": labels(n), "tolerations": taints},
        "overhead": {"podFixed": amounts},
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "k", "values": names}]}],
    }


class Cluster(Shown):
    """A store with some nodes, and what the allocator makes of what it is shown."""

    def __init__(self):
        """Begin with nodes and nothing else."""
        self.store = Store(gang.EMBEDDED, [FRAMEWORKS["TFJob"]])
        for i in range(NODES):
            self.put({"kind": "Node", **make_node(name=f"n{i}", cpu=64)})

    def show(self, document):
        """Show it as the server would."""
        given = {
            "namespace": "team",
            "generation": 1,
            "creationTimestamp": edge.format_time(START),
        }
        metadata = {**document["metadata"], **given, "uid": f"uid-{document['metadata']['name']}"}
        self.put({**document, "metadata": metadata})

    def decide(self):
        """Run a cycle."""
        settings = GangSettings(GangRules(frozenset({"muster"}), "default"))
        inputs = evaluated(tracked(self.store), settings, START)
        queues = settings.rules.queues(self.store.queues)
        snapshot = self.store.columns.snapshot(inputs, queues, START)
        return cycle.schedule(snapshot, policy.DEFAULT)


def job(name, change, **more):
    """Return a job whose template is changed."""
    container = {"name": "tensorflow", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {}, "spec": {"containers": [container]}}
    change(template)
    document = tfjob(name=name, Worker={"replicas": 2, "template": template})
    for part, fields in more.items():
        for key, value in fields.items():
            held = document.setdefault(part, {})
            held[key] = {**held[key], **value} if isinstance(held.get(key), dict) else value
    return json.loads(json.dumps(document))


def seconds(work):
    """Return how long it keeps the processor, which collects no garbage meanwhile."""
    gc.disable()
    try:
        began = time.process_time()
        work()
        return time.process_time() - began
    finally:
        gc.enable()


def whole(documents):
    """Return the work from documents to decisions, and to the pods of the first."""

    def work():
        cluster = Cluster()
        for document in documents:
            cluster.show(document)
        cluster.decide()
        World(json.loads(json.dumps(documents[0])), backend=gang.EMBEDDED).decide()

    return work


def grows(make, count):
    """Return how much longer it takes with so many times as many, from the length where it shows.

    What else the processor did may make it longer, but not each time.
    """
    while (before := seconds(make(count))) < LEAST and count < MOST:
        count *= 2
    found = []
    while len(found) < TRIES and (not found or found[-1] > AT_MOST):
        found.append(seconds(make(TIMES * count)) / max(before, LEAST / 2))
        before = min(before, seconds(make(count))) if found[-1] > AT_MOST else before
    return min(found)


def is_linear(cost):
    """Return whether items cost as many lines of Python each in a list four times as long.

    Below the limits of templates, above which time shows the cost of a refusal alone. What other
    tests have left in caches may make the short list cheaper, but not twice.
    """
    cost(1)  # what is read or computed once
    for _ in range(2):
        empty, short, long = (cost(1 + count) for count in (0, ITEMS, TIMES * ITEMS))
        if long - empty <= LINES_AT_MOST * (short - empty):
            return True
    return False


def two_jobs(name, count):
    """Return the work for two jobs with such a list, so that those of one meet the other's."""
    change = LISTS[name](count) if name in LISTS else lambda _template: None
    more = OF_JOBS[name](count) if name in OF_JOBS else {}
    return whole([job(f"j{i}", change, **more) for i in range(2)])


@pytest.mark.parametrize("name", [*LISTS, *OF_JOBS])
def test_list_of_a_job_costs_the_same_for_each_item(name):
    """From the documents to the decision and the pods."""
    assert is_linear(lambda count: call_count.lines(two_jobs(name, count)))


@pytest.mark.parametrize("name", [*LISTS, *OF_JOBS])
def test_long_list_of_a_job_costs_in_proportion(name):
    """Also where only time shows it, and where the list is beyond a limit."""
    assert grows(lambda count: two_jobs(name, count), 1000) < AT_MOST


@pytest.mark.parametrize("kind", Cluster().store.collections)
def test_lists_of_an_object_cost_the_same_for_each_item(kind, caplog):
    """In each kind of object that is watched."""

    def cost(n):
        cluster, refers = Cluster(), {"kind": "TFJob", "name": "j0", "uid": "uid-j0"}
        given = {"finalizers": list(labels(n)), "ownerReferences": [refers] * n}
        given |= {"name": "o", "namespace": "team", "labels": labels(n), "annotations": labels(n)}
        document = {"kind": kind, "metadata": given, **fields(n)}

        def work():
            cluster.show(job("j0", lambda _template: None))
            cluster.put(document)
            cluster.decide()

        return call_count.lines(work)

    assert is_linear(cost)
    assert not caplog.records


def pod(name, change, **more):
    """Return a pod that somebody has made himself."""
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    spec = {"containers": [container], "schedulerName": "muster", **more}
    document = {"kind": "Pod", "metadata": {"name": name}, "spec": spec}
    change(document)
    return json.loads(json.dumps({**document, "status": {"phase": "Running" if more else ""}}))


@pytest.mark.parametrize("name", LISTS if NIGHT else MEETING)
def test_a_long_list_of_somebody_elses_pod(name):
    """Two that wait, and one that runs."""

    def make(count):
        change = LISTS[name](count)
        documents = [pod("a", change), pod("b", change), pod("c", change, nodeName="n1")]

        def work():
            cluster = Cluster()
            for document in documents:
                cluster.show(document)
            assert {decision.gang for decision in cluster.decide()} == {"Pod/team/a", "Pod/team/b"}

        return work

    assert grows(make, 1000) < AT_MOST


def own(name, i):
    """Return how a template gets a short list of that kind, like nobody else's."""

    def change(template):
        LISTS[name](8)(template)
        template["metadata"].setdefault("labels", {})[f"{KEY}-own"] = f"{i}"
        template.update(json.loads(json.dumps(template).replace(KEY, f"{KEY}-{i}")))

    return change


@pytest.mark.parametrize("name", LISTS if NIGHT else MEETING)
def test_many_jobs(name):
    """Each with a short list of its own."""

    def make(count):
        return whole([job(f"j{i}", own(name, i)) for i in range(count)])

    assert grows(make, 32) < AT_MOST
