# SPDX-License-Identifier: Apache-2.0
"""Documents that an API server has stored and nobody expected, one by one.

Each costs its own object at most: what it may not be is said on it, and the job beside it, which
asks for nothing unusual, gets its nodes in the same cycle.
"""

import copy
import json
import logging
import math
from pathlib import Path

import pytest
import yaml
from pydantic_core import from_json, to_json

from muster import gang
from muster.allocator.members import GangSettings
from muster.api import names
from muster.cluster.gangs import GangRules
from muster.frameworks import FRAMEWORKS
from muster.scheduler import cycle, policy
from muster.store import parse
from muster.store.store import Callbacks, Store
from support.apiserver.memory import tfjob
from support.builders.scheduler import make_node, make_pod
from support.rehearsal.gang_tracking import Shown, evaluated, reconcile_all, tracked

NOW = 1_800_000_000.0
VICTIM, ODD = "TFJob/team/mnist", "TFJob/odd/odd"
LONG = "9" * 5000
CORPUS = Path(__file__).parents[1] / "corpus" / "stored.yaml"
STORED = yaml.load(CORPUS.read_text(), yaml.CSafeLoader)
STORED = json.loads(json.dumps(STORED).replace("LONG", LONG))


class Story(Shown):
    """A store with two nodes, each of which has room for one worker of two."""

    def __init__(self):
        """Begin with the nodes."""
        self.told, self.uids = [], set()
        callbacks = Callbacks(unreadable=lambda about, why: self.told.append((about, why.reason)))
        self.store = Store(gang.EMBEDDED, FRAMEWORKS.values(), callbacks=callbacks)
        self.store.groups.use(gang.EMBEDDED.apis[0])
        rules = GangRules(frozenset({"muster"}), "default", self.store.priorities)
        self.settings = GangSettings(rules)
        self.gangs = tracked(self.store)
        for name in ("n1", "n2"):
            self.put({"kind": "Node", **make_node(name=name, cpu=1, labels={"zone": name})})
        self.put({"kind": "Queue", "metadata": {"name": "default"}})

    def job(self, name="mnist", namespace="team", *, template=None, **policy):
        """Show a job of two workers of a CPU each, with some more in its template."""
        container = {"name": "tensorflow", "image": "i"}
        container["resources"] = {"requests": {"cpu": "1"}}
        template = copy.deepcopy(template or {})
        spec = template.setdefault("spec", {})
        spec.setdefault("containers", [container])
        document = tfjob(name=name, Worker={"replicas": 2, "template": template})
        document["spec"]["runPolicy"] = policy
        document["metadata"] |= {"namespace": namespace, "generation": self.version + 1}
        document["metadata"]["creationTimestamp"] = "2024-01-01T00:00:00Z"
        return self.put(document)

    def cycle(self):
        """Return what is decided, by gang."""
        inputs = evaluated(self.gangs, self.settings, NOW)
        snapshot = self.store.columns.snapshot(inputs, list(self.store.queues.values()), NOW, ())
        found = cycle.schedule(snapshot, policy.DEFAULT)
        cycle.schedule(
            snapshot, policy.parse({"actions": "allocate, preempt, reclaim, defragment"})
        )
        return {decision.gang: decision for decision in found}

    def victim(self):
        """Return what is decided of a job that asks for nothing unusual and comes last."""
        self.job()
        return self.cycle()[VICTIM]


@pytest.fixture
def story():
    """Return the store."""
    return Story()


def metadata(name, **more):
    """Return metadata of an object, by default in a namespace that is nobody's concern."""
    return {"name": name, "namespace": "odd"} | more


def claim(size):
    """Return a claim that asks for so much."""
    spec = {"resources": {"requests": {"storage": size}}, "accessModes": ["ReadWriteOnce"]}
    return {"kind": "PersistentVolumeClaim", "metadata": metadata("c"), "spec": spec}


def odd_pod(containers=1, **amounts):
    """Return a pod whose containers ask for so much each."""
    made = make_pod(name="odd", namespace="odd", node="n2", uid="odd")
    resources = {"requests": amounts}
    made["spec"]["containers"] = [
        {"name": f"c{i}", "resources": resources} for i in range(containers)
    ]
    return {"kind": "Pod", **made}


@pytest.mark.parametrize("document", STORED["documents"].values(), ids=STORED["documents"])
def test_what_is_stored_is_read(story, document):
    """It has a value, and its neighbour is placed."""
    story.put(document)
    assert {p.node for p in story.victim().placements} == {"n1", "n2"}
    assert story.told == []
    reconcile_all(story.store, NOW)


def test_thousands_of_pods_at_the_limit(story):
    """Their sum is beyond 64 bits, and what one of them gives back does not make room."""
    for i in range(3000):
        pod = odd_pod(cpu="8Pi", memory="8Pi")
        pod["metadata"] |= {"name": f"odd-{i}", "uid": f"odd-{i}"}
        story.put(pod)
    for i in range(2999):
        if i % 512 == 0:
            used = story.store.columns.snapshot([], [], NOW).nodes.used
            assert used[1, 1:3].min() >= 2**53
        story.store.gone("Pod", "odd", f"odd-{i}", f"odd-{i}")
    assert not story.victim().placements
    story.store.gone("Pod", "odd", "odd-2999", "odd-2999")
    assert not story.store.columns.snapshot([], [], NOW).nodes.used.any()


TERM = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
LARGE = {"name": "tensorflow", "image": "i", "resources": {"requests": {"memory": "8Pi"}}}
TEMPLATES = {
    **STORED["templates"],
    "a sum beyond 64 bits": {"spec": {"containers": [LARGE] * 1024}},
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_what_a_template_says_is_its_own_trouble(story, template):
    """Also where no pod may be so: the neighbour comes in the same cycle."""
    story.job("odd", "odd", template=template)
    story.put({"kind": "Node", **make_node(name="n3", cpu=4, memory="1Gi", labels={"zone": "z"})})
    assert len(story.victim().placements) == 2
    reconcile_all(story.store, NOW)


def test_a_template_is_of_no_other_namespace(story):
    """Its pods are where its job is, whatever it says of its own metadata."""
    away = {REQUIRED: [{**TERM, "labelSelector": {}, "topologyKey": "zone"}]}
    metadata = {"namespace": "team", "name": "mnist-worker-0"}
    template = {"metadata": metadata, "spec": {"affinity": {"podAntiAffinity": away}}}
    story.job("odd", "odd", template=template)
    (shape,) = {r.shape for g in evaluated(story.gangs, story.settings, NOW) for r in g.roles}
    assert shape.identity.namespace == "odd"
    assert {term.who.namespaces for term in shape.apart} == {frozenset({"odd"})}


@pytest.mark.timeout(10)
@pytest.mark.parametrize("status", [{}, {"startTime": "2024-01-01T00:00:00Z"}])
def test_jobs_above_the_limit_of_replicas_cost_no_more_than_small_jobs(story, status):
    """Sixty such jobs are no gangs, are reconciled, and the neighbor's job is placed."""
    for number in range(60):
        document = story.job(f"odd-{number}", "odd")
        document["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 2**31 - 1
        story.put({**document, "status": status})
    assert {p.node for p in story.victim().placements} == {"n1", "n2"}
    assert [gang.key for gang in evaluated(story.gangs, story.settings, NOW)] == [VICTIM]
    reconcile_all(story.store, NOW)


def unreadable(kind, name, **fields):
    """Return an object of which something is none of what it has to be."""
    return {"kind": kind, "metadata": metadata(name, uid=f"uid-{name}"), **fields}


@pytest.mark.parametrize("amount", ["-1", "-1e10000", "1e1.5"])
def test_a_queue_that_cannot_be_read_lets_nobody_in(story, amount):
    """Its jobs are told its name; those of others are placed, and so are its own once it is."""
    queue = {"kind": "Queue", "metadata": {"name": "odd", "uid": "q"}}
    story.put(queue | {"spec": {"capability": {"cpu": amount}}})
    story.job("odd", "odd", schedulingPolicy={"queue": "odd"})
    decision = story.cycle()[ODD]
    assert (decision.verdict.reason, decision.placements) == ("Unreadable", ())
    assert f'queue "odd" cannot be read: "{amount}"' in decision.verdict.message
    assert len(story.victim().placements) == 2
    ((about, reason),) = story.told
    assert (about["apiVersion"], about["kind"], about["metadata"]["name"]) == (
        "scheduling.incubator.k8s.io/v1alpha1", "Queue", "odd",
    )  # fmt: skip
    assert amount in reason
    assert story.store.unreadable() == {"Queue": 1}
    story.put(queue | {"spec": {"capability": {"cpu": "2"}}})
    assert story.store.unreadable() == {}
    assert len(story.cycle()[ODD].placements) == 2


def shy_pod(count, node="n2", **fields):
    """Return a pod of another scheduler with that many required anti-affinity terms."""
    terms = [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": f"b{i}"}}, **fields}
        for i in range(count)
    ]
    pod = make_pod(name="odd", namespace="odd", node=node, uid="odd")
    pod["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: terms}}
    return {"kind": "Pod", **pod}


def test_pod_with_1500_terms_is_reported_once(story):
    """The pod counts as unreadable until a version has fewer terms."""
    story.put(shy_pod(64))
    assert (story.told, story.store.unreadable()) == ([], {})
    for phase in ("Pending", "Running", "Running"):
        story.put({**shy_pod(1500), "status": {"phase": phase}})
    ((about, reason),) = story.told
    assert (about["kind"], about["metadata"]["name"]) == ("Pod", "odd")
    assert reason == (
        f"spec.affinity.podAntiAffinity.{REQUIRED}: Too many: 1500: must have at most 64 items"
    )
    assert story.store.unreadable() == {"Pod": 1}
    assert story.store.children.pod("odd", "odd").phase == "Running"
    story.put(shy_pod(64))
    assert story.store.unreadable() == {}


NONE = "not a quantity"
VOLUME = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}


@pytest.mark.parametrize("which", ["claim", "selector"])
def test_claim_that_cannot_be_read_is_waited_for(story, which):
    """By those that use it, with its name."""
    if which == "claim":
        story.put(claim(NONE))
        sentence = 'claim "c" cannot be read: "not a quantity"'
    else:
        made = claim("1Gi")
        asked = [{"key": f"k{number}", "operator": "Exists"} for number in range(2000)]
        made["spec"]["selector"] = {"matchExpressions": asked}
        story.put(made)
        sentence = (
            'claim "c" cannot be read: spec.selector: Too many: 2000: must have at most 1024'
        )
    story.job("odd", "odd", template={"spec": {"volumes": [VOLUME]}})
    decision = story.cycle()[ODD]
    assert (decision.verdict.reason, decision.placements) == ("WaitingForVolume", ())
    assert sentence in decision.verdict.message
    assert len(story.victim().placements) == 2


def test_a_node_that_cannot_be_read_offers_nothing(story):
    """The others do."""
    node = make_node(name="n2", cpu=1)
    node["status"]["allocatable"]["cpu"] = NONE
    story.put({"kind": "Node", **node})
    decision = story.victim()
    assert not decision.placements
    assert "1 node(s) were not ready" in decision.verdict.message
    story.put({"kind": "Node", **make_node(name="n3", cpu=1)})
    assert {p.node for p in story.cycle()[VICTIM].placements} == {"n1", "n3"}


def test_a_pod_that_cannot_be_read_fills_its_node(story):
    """Until it ends."""
    pod = odd_pod(cpu=NONE)
    story.put(pod)
    assert not story.victim().placements
    assert story.store.children.pod("odd", "odd").node == "n2"
    assert story.store.children.pod("odd", "odd").tolerates.unreachable == math.inf
    story.put(pod | {"status": {"phase": "Succeeded"}})
    assert {p.node for p in story.cycle()[VICTIM].placements} == {"n1", "n2"}


@pytest.mark.parametrize(("count", "key"), [(1, {}), (2000, {"key": "none-has-it"})])
def test_a_budget_that_cannot_be_read_forbids_everything(story, count, key):
    """In its namespace."""
    selector = {"matchExpressions": [{"operator": "Exists", **key}] * count}
    story.put(unreadable("PodDisruptionBudget", "odd", spec={"selector": selector}))
    story.put(odd_pod(cpu="1"))
    pod = story.store.children.pod("odd", "odd")
    assert story.store.budgets.forbid("odd", [pod])
    assert not story.store.budgets.forbid("team", [pod])


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"minMember": 1, "minResources": {"cpu": "-1"}}, 'minResources: "-1" is negative'),
        ({"minMember": 1, "minResources": {"cpu": NONE}}, 'minResources: "not a quantity"'),
        (
            {"minResources": {f"x.io/{n}": "1" for n in range(5000)}},
            "its maps and lists have more",
        ),
        ([1], "spec is no object"),
    ],
)
def test_a_group_that_cannot_be_read_says_so_of_its_gang(story, spec, sentence):
    """Its pods wait."""
    story.put({"kind": "PodGroup", "metadata": metadata("g", uid="g"), "spec": spec})
    pod = make_pod(name="w", namespace="odd", node="", cpu=1)
    pod["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "g"}
    pod["spec"]["schedulerName"] = "muster"
    story.put({"kind": "Pod", **pod})
    decision = story.cycle()["PodGroup/odd/g"]
    assert (decision.verdict.reason, decision.placements) == ("Unreadable", ())
    assert f'PodGroup "g" cannot be read: {sentence}' in decision.verdict.message
    assert len(story.victim().placements) == 2


def test_what_no_parser_has_foreseen_is_logged_once(story, caplog):
    """With its traceback, and no character that a log could be deceived with."""
    broken = {"allowedTopologies": [{"matchLabelExpressions": ["a\nb"]}]}
    document = {"kind": "StorageClass", "metadata": {"name": "s"}, **broken}
    with caplog.at_level(logging.WARNING, "muster"):
        stored = story.put(document)
        story.store.put(stored)
    (record,) = caplog.records
    assert record.getMessage().startswith("StorageClass s cannot be read: TypeError: ")
    assert record.exc_info
    story.store.gone("StorageClass", "", "s", "uid-s")
    assert story.store.unreadable() == {}


def test_pods_with_equal_labels_share_long_keys():
    """Each key is stored once, however long it is and however many pods have it."""

    def read(number):
        labels = {f"{'x' * 200}.com/{label}": str(number) for label in range(3)}
        document = from_json(to_json(make_pod(name=f"pod-{number}", labels=labels)))
        return parse.parse(document, gang.EMBEDDED, (), ("",))

    entries = [read(number) for number in range(2)]
    assert len({id(key) for entry in entries for key in entry.view.labels}) == 3
    assert all(entry.use.labels is entry.view.labels for entry in entries)


def test_objects_with_40000_labels_are_kept_small():
    """A user of one namespace could else fill the memory of the operator with a few hundred."""
    labels = {f"label-{number:05}": "" for number in range(40_000)}
    document = make_pod(labels={**labels, names.REPLICA_INDEX: "3"})
    entry = parse.parse(document, gang.EMBEDDED, (), ("",))
    document |= {"apiVersion": "v1", "kind": "Service"}
    others = parse.child(document), parse.group(document)
    kept = (entry.view, entry.use, *others)
    assert all(len(each.labels) <= parse.MAX_LABELS for each in kept)
    assert entry.view.index == 3
    assert entry.use.labels is entry.view.labels


def test_failed_pod_has_ended_by_now_whatever_the_clock_of_its_node_says():
    """Its successor would wait for that time."""
    status = {"phase": "Failed", "startTime": "2030-01-01T00:00:00Z"}
    document = make_pod(name="one") | {"status": status}
    ends = [parse.pod(document, None, now).ended for now in (5e3, 5e9)]
    assert ends == [5e3, 1893456000.0]
