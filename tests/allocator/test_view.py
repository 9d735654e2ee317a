# SPDX-License-Identifier: Apache-2.0
"""What people are shown of a cycle: a view, what differs in the next, and what a tenant sees."""

import json
import math
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster import frameworks
from muster.allocator import view
from muster.api import status
from muster.api.reasons import DeletionReason
from muster.frameworks import FRAMEWORKS
from muster.scheduler.decision import Decision, Eviction, Move
from muster.scheduler.model import Topology
from support.apiserver.memory import tfjob
from support.builders import sample_clusters
from support.builders.scheduler import make_gang, make_node, make_pod, make_role

HALL, SEEN = sample_clusters.small()


@pytest.fixture(scope="module")
def shown():
    """Return the view of the small hall."""
    return view.make(SEEN, ())


def test_every_device_of_a_node_is_somebodys_or_free(shown):
    """The gangs' by their tasks, since when they hold them; the rest is other pods'."""
    node = shown["nodes"]["gpu-c-4"]
    assert (node["device"], node["size"], node["others"]) == ("nvidia.com/gpu", 8.0, 1.0)
    assert node["held"] == [
        ["PyTorchJob/speech/whisper-ft", "worker", "4-7", 1.0, 1_789_999_100],
        ["XGBoostJob/ranking/churn", "worker", "0-1", 1.0, 1_789_999_700],
    ]
    assert shown["nodes"]["gpu-c-8"]["unusable"]
    assert "unusable" not in node


def test_a_node_that_is_promised_alone_is_held_since_now():
    """The pod of the task has not begun, and nobody knows when it does."""
    role = make_role(held=[(0, "n1"), (1, "n2")], started=[50.0, math.inf], cpu=1)
    gang = make_gang(key="TFJob/team/a", roles=[role], started=50.0)
    _, seen = sample_clusters.saw([make_node(name="n1"), make_node(name="n2")], [gang], ())
    nodes = view.make(seen, ())["nodes"]
    assert [nodes[name]["held"][0][4] for name in ("n1", "n2")] == [50, 1000]


def test_a_node_without_devices_shows_its_cpus():
    """One device of a node is drawn, the most common: no network adapters and no huge pages."""
    gangs = [make_gang(key="TFJob/team/a", roles=[make_role(held=[(0, "n1")], cpu=3)])]
    devices = make_node(name="n2", gpu=2, **{"a.com/nic": 900, "hugepages-2Mi": "4Gi"})
    _, seen = sample_clusters.saw([make_node(name="n1"), devices], gangs, ())
    made = view.make(seen, ())
    assert made["nodes"]["n1"] == {
        "device": "cpu", "size": 8.0, "held": [["TFJob/team/a", "worker", "0", 3.0, 0]],
    }  # fmt: skip
    assert made["nodes"]["n2"]["device"] == "nvidia.com/gpu"


def test_a_gang_that_waits_says_why_for_how_long_and_behind_whom(shown):
    """In the words of its verdict, and what would help."""
    first = shown["gangs"]["PyTorchJob/language/rlhf-round-3"]
    assert (first["state"], first["position"]) == ("Reserved", 1)
    assert "eta" in first
    assert first["summary"].startswith("0/8 placed")
    assert "PyTorchJob/vision/vit-pretrain" in first["behind"]
    assert first["helps"][0] == "nothing is to be done: nodes are kept for it"
    assert first["asks"] == {"cpu": "32", "nvidia.com/gpu": "64"}
    assert sum(first["room"].values()) == 64
    assert all(shown["nodes"][name]["size"] >= kept for name, kept in first["room"].items())
    assert [key for key, each in shown["gangs"].items() if "room" in each] == [
        "PyTorchJob/language/rlhf-round-3"
    ]
    never = shown["gangs"]["TFJob/ranking/embeddings"]
    assert never["helps"][0].startswith("no wait will do")
    assert "eta" not in never


def test_a_gang_that_runs_says_since_when_and_until_when(shown):
    """As far as anybody knows."""
    gangs = shown["gangs"]
    weather, ads = gangs["MPIJob/physics/weather"], gangs["TFJob/ranking/ads-nightly"]
    assert (weather["state"], weather["started"], weather["ends"]) == (
        "Running", 1_789_997_600, 1_790_000_700,
    )  # fmt: skip
    assert "ends" not in ads
    assert not {"reason", "message", "position"} & weather.keys()


def test_what_is_done_and_what_could_be_done_for_a_gang():
    """Evictions, moves, and proposals of moves."""
    decision = SEEN.decisions[0]
    out = Eviction("TFJob/a/out", "worker", 0, "n", DeletionReason.PREEMPT)
    away = Move("TFJob/a/move", ())
    moved = Eviction("TFJob/a/move", "worker", 0, "n", DeletionReason.DEFRAGMENT)

    def helps(**fields):
        changed = replace(SEEN, decisions=(replace(decision, **fields),))
        return view.make(changed, ())["gangs"][decision.gang]["helps"]

    assert helps(evictions=(out, out))[0] == "pods of TFJob/a/out are evicted for it"
    assert helps(moves=(away,))[0] == "TFJob/a/move could move, which makes the room"
    done = helps(moves=(away,), evictions=(moved,))
    assert done[0] == "TFJob/a/move moves, which makes the room"
    assert not any("evicted" in text for text in done)


def test_queues_say_what_they_hold_and_are_due(shown):
    """Beside how many run and wait."""
    research = shown["queues"]["research"]
    assert research["held"]["nvidia.com/gpu"] == 104
    assert research["due"]["nvidia.com/gpu"] == pytest.approx(92)
    assert (research["running"], research["waiting"]) == (2, 2)


def test_a_time_of_start_that_hardly_moves_stays():
    """Else every cycle would send the times of all who wait."""
    decision = SEEN.decisions[0]

    def at(eta, before=view.NOTHING):
        changed = replace(decision, verdict=replace(decision.verdict, eta=eta))
        return view.make(replace(SEEN, decisions=(changed,)), (), before)

    first = at(1_790_001_000.0)
    near = at(1_790_001_009.0, first)
    assert near["gangs"][decision.gang]["eta"] == 1_790_001_000
    assert not view.difference(first, near)
    far = at(1_790_001_100.0, near)
    assert view.difference(near, far)["gangs"].keys() == {decision.gang}


def job(name, ended, **fields):
    """Return a job whose status is so."""
    made = frameworks.load(FRAMEWORKS["TFJob"], tfjob(name=name))
    done = {"type": "Failed", "status": "True", "reason": "", "message": ""}
    turned = {"lastTransitionTime": ended, "lastUpdateTime": ended}
    fields |= {"conditions": [done | turned]} if ended else {}
    return replace(made, status=status.read({"state": "Failed", **fields}))


def test_jobs_are_shown_with_what_was_wrong_until_they_are_over_for_long():
    """The timeline needs those of the last hours, and no more."""
    failed = {"pod": "bad-worker-0", "replicaType": "Worker", "index": 0, "reason": "Evicted"}
    jobs = [
        job("bad", "2026-09-21T13:00:00Z", firstFailure={**failed, "failureTime": None},
            replicaStatuses={"Worker": {"restarts": 2}}, startTime="2026-09-21T12:00:00Z"),
        job("old", "2026-09-20T13:00:00Z"),
        job("new", None),
    ]  # fmt: skip
    found = view.make(SEEN, jobs)["jobs"]
    assert found.keys() == {jobs[0].key, jobs[2].key}
    bad = found[jobs[0].key]
    assert bad["failed"] == "The first to fail was pod bad-worker-0: Evicted."
    assert (bad["restarts"], bad["ended"] - bad["started"]) == (2, 3600)


def test_one_gang_alone_is_told_with_where_it_lies():
    """By the levels that it asks for."""
    snapshot = SEEN.snapshot
    gang = next(g for g in snapshot.gangs if g.key.endswith("llama-70b"))
    assert gang.topology == Topology(level=sample_clusters.RACK)
    told = view.detail(job("bad", "2026-09-21T13:00:00Z"), (), gang, snapshot.nodes)
    assert told["levels"] == {sample_clusters.RACK: {"rack-b": 7}}
    assert told["conditions"][0]["type"] == "Failed"


# What differs.


def applied(before, changes):
    """Return a view as a page has it that was sent these changes."""
    after = json.loads(json.dumps(before))
    for section, documents in json.loads(json.dumps(changes)).items():
        for key, document in documents.items():
            if document is None:
                del after[section][key]
            else:
                after[section][key] = document
    return after


def test_a_difference_is_what_has_changed_and_no_more(shown):
    """A gang that goes frees its nodes, and nothing else is sent."""
    key = "XGBoostJob/ranking/churn"
    after = view.make(sample_clusters.without(SEEN, key), (), shown)
    changes = view.difference(shown, after)
    assert changes["gangs"] == {key: None}
    assert changes["nodes"].keys() == {"gpu-c-4"}
    assert applied(shown, changes) == json.loads(json.dumps(after))


# What a tenant sees.

TENANTS = ("vision", "language", "ranking", "physics", "speech")


def alias(key):
    """Return a name that says nothing."""
    return f"~{zlib.crc32(key.encode()):x}"


@given(st.sets(st.sampled_from(TENANTS)))
def test_no_name_of_another_namespace_is_shown(shown, visible):
    """Neither of it, nor of what is in it, in any document; what is one's own is all there."""
    seen = view.seen_by(shown, visible, alias)
    text = json.dumps(seen)
    for key in shown["gangs"]:
        _, space, name = key.split("/")
        if space in visible:
            assert key in seen["gangs"]
        else:
            assert name not in text
            assert f"/{space}/" not in text
            assert f" {space}/" not in text
    held = {
        name: sum(sample_clusters.devices(node).values()) for name, node in shown["nodes"].items()
    }
    assert held == {
        n: sum(sample_clusters.devices(node).values()) for n, node in seen["nodes"].items()
    }


@pytest.mark.parametrize("kind", ["TFJob", "pod-group", "PodGroup.scheduling.x-k8s.io"])
@pytest.mark.parametrize("sentence", ["behind {}, which goes on", "evicted for {}", "{}: waits"])
@pytest.mark.parametrize("spaced", [False, True])
def test_sentences_name_nobody_either(kind, sentence, spaced):
    """However keys look in them; a name that begins as another does leaves no rest."""
    keys = [f"{kind}/secret/plan", f"{kind}/secret/plan-b", "TFJob/mine/own"]
    shown = f"{kind} secret/plan-b" if spaced else keys[1]
    text = sentence.format(shown)
    gangs = {key: {"queue": "q", "state": "Waiting"} for key in keys}
    told = {"reason": "R", "message": text, "behind": [keys[1], keys[2]], "helps": [text]}
    gangs[keys[2]] |= told
    seen = view.seen_by({**view.NOTHING, "gangs": gangs}, {"mine"}, alias)
    found = json.dumps(seen)
    assert "secret" not in found
    assert "plan" not in found
    assert seen["gangs"][keys[2]]["behind"] == ["a job of another namespace", keys[2]]


def test_places_in_the_queue_stay(shown):
    """Under another name: who waits sees how many are before him."""
    seen = view.seen_by(shown, {"vision"}, alias)
    first = alias("PyTorchJob/language/rlhf-round-3")
    assert seen["gangs"][first] == {"queue": "research", "state": "Reserved", "position": 1}
    assert seen["gangs"]["PyTorchJob/vision/sam-distill"]["position"] == 2
    assert seen["jobs"] == {}


def test_pods_are_told_with_what_went_wrong():
    """The first bad end of a container, or why the pod does not start."""
    from support.builders.objects import make_pod as make_view

    told = view.detail(None, [make_view(name="a", phase="Failed", reason="Evicted")], None, None)
    assert [(pod["name"], pod["phase"], pod["reason"]) for pod in told["pods"]] == [
        ("a", "Failed", "Evicted")
    ]


def test_nothing_is_there_in_an_empty_cluster():
    """Which is a view, too."""
    _, seen = sample_clusters.saw([], [], ())
    made = view.make(seen, ())
    assert (made["head"], made["nodes"], made["gangs"]) == ({"at": 1000.0}, {}, {})


def test_decisions_without_a_gang_are_left_out():
    """What was decided of others than those that were seen."""
    odd = Decision("TFJob/a/b", SEEN.decisions[0].verdict)
    assert "TFJob/a/b" not in view.make(replace(SEEN, decisions=(odd,)), ())["gangs"]


def test_pods_of_nobody_count():
    """As others', whoever made them."""
    pod = make_pod(gpu=3, node="n1")
    _, seen = sample_clusters.saw([make_node(name="n1", gpu=4)], [], (), [pod])
    assert view.make(seen, ())["nodes"]["n1"]["others"] == 3.0
