# SPDX-License-Identifier: Apache-2.0
"""The stories under scenarios/scheduler: what is there, and what must come of it.

Nodes, pods, queues and roles are the keywords of builders_scheduler; claims, volumes, storage
classes and limits (CSINodes) are documents. What a story expects of a
gang: `at` (role-index -> node), `nodes` (node -> tasks placed there), `placed` (how many),
`message` and `summary` exactly, `says` (parts of the message), `evicts` (gang -> how many of its
tasks, or which ones), `by` (the action that evicts), `kept` (role-index -> node that is kept for
it), `moves` (gang -> role-index -> node where it goes instead), `head_since`, and any other field
of its verdict; null for no decision at all. `moves` of a story are those of the last hour,
`devices` the resources of DeviceClasses. An object with `times` stands for so many, whose number
replaces {i}.
"""

import functools
import json
from collections import Counter
from pathlib import Path

import pytest
import yaml

from muster.api.reasons import Reason
from muster.scheduler import policy
from muster.scheduler.model import PastMove, QueueHistory, Quota, Refusal, Topology
from support.builders.scheduler import (
    STORED,
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    nodes_of,
    run,
)

STORIES = sorted((Path(__file__).parents[1] / "scenarios" / "scheduler").glob("*.yaml"))


def load(path):
    """Return the parts of a story as values, and what it expects."""
    story = yaml.load(path.read_text(), yaml.CSafeLoader)
    assert story["story"], "a scenario says what it is about"
    for name in ("nodes", "pods", "gangs", "queues"):
        story |= {name: list(_expanded(story[name]))} if name in story else {}
    parts = {
        "nodes": [make_node(**node) for node in story["nodes"]],
        "pods": [make_pod(**pod) for pod in story.get("pods", ())],
        "gangs": [_gang(**gang) for gang in story["gangs"]],
        "stored": [parse(doc) for kind, parse in STORED.items() for doc in story.get(kind, ())],
        "with_policy": policy.parse(story.get("policy", {})),
        "now": story.get("now", 1000.0),
    }
    if parts["with_policy"].moves:
        parts["moves"] = tuple(PastMove(**move) for move in story.get("moves", ()))
    if "quotas" in story:
        parts["quotas"] = {
            f"{quota['name']}/{quota['resource']}": Quota(**quota) for quota in story["quotas"]
        }
    if "queues" in story:
        parts["queues"] = [_queue(**queue) for queue in story["queues"]]
    parts["devices"] = frozenset(story.get("devices", ()))
    return parts, story["expect"]


def _expanded(objects):
    for one in objects:
        times = one.pop("times", None)
        for i in range(times or 1):
            made = json.dumps(one).replace("{i}", f"{i:02}")
            yield one if times is None else json.loads(made)


def _queue(history=None, **fields):
    return make_queue(**fields, **({"history": QueueHistory(**history)} if history else {}))


def _gang(roles, refusal=None, **fields):
    if refusal:
        fields["refusal"] = Refusal(Reason(refusal["reason"]), refusal["sentence"])
    for asking in (fields, *roles):
        if "topology" in asking:
            asking["topology"] = Topology(**asking["topology"])
        if "takes" in asking:
            asking["takes"] = tuple(asking["takes"].items())
    return make_gang(roles=[make_role(**role) for role in roles], **fields)


SEEN = {
    "at": nodes_of,
    "nodes": lambda decision: dict(Counter(p.node for p in decision.placements)),
    "placed": lambda decision: len(decision.placements),
    "kept": lambda decision: {f"{p.role}-{p.index}": p.node for p in decision.nominations},
    "moves": lambda decision: {
        move.gang: {f"{p.role}-{p.index}": p.node for p in move.placements}
        for move in decision.moves
    },
    "by": lambda decision: ", ".join({eviction.action for eviction in decision.evictions}),
    "head_since": lambda decision: decision.head_since,
    "state": lambda decision: str(decision.verdict.state),
    "reason": lambda decision: str(decision.verdict.reason),
}


def seen(decision, name):
    """Return what the decision says where a story expects `name`."""
    if name in SEEN:
        return SEEN[name](decision)
    value = getattr(decision.verdict, name)
    return list(value) if isinstance(value, tuple) else value


def evicted(decision, wanted):
    """Return gang -> what is evicted of it: as many, or which ones where the story lists them."""
    gone = {}
    for eviction in decision.evictions:
        gone.setdefault(eviction.gang, []).append(f"{eviction.role}-{eviction.index}")
    listed = {key for key, value in wanted.items() if isinstance(value, list)}
    return {key: sorted(each) if key in listed else len(each) for key, each in gone.items()}


@pytest.fixture(scope="module", params=STORIES, ids=[path.stem for path in STORIES])
def path(request):
    """Give a story to all who tell it, one after the other."""
    return request.param


@functools.lru_cache(maxsize=1)
def told(path):
    """Return the parts of a story, what it expects, and what is decided, by gang."""
    parts, expect = load(path)
    return parts, expect, run(**parts)


def test_story(path):
    """Every gang of the story gets what the story expects."""
    _, expect, decisions = told(path)
    assert set(decisions) == {key for key, wanted in expect.items() if wanted is not None}
    for key, wanted in expect.items():
        for name, value in (wanted or {}).items():
            if name == "says":
                message = decisions[key].verdict.message
                assert [part for part in value if part not in message] == [], message
            elif name == "evicts":
                assert evicted(decisions[key], value) == value, key
            else:
                assert seen(decisions[key], name) == value, (key, name)


def test_story_told_backwards(path):
    """The order in which nodes, pods and gangs are listed changes nothing."""
    parts, _, decisions = told(path)
    backwards = {
        name: part[::-1] if isinstance(part, list) else part for name, part in parts.items()
    }
    assert run(**backwards) == decisions


def test_stories_are_found():
    """The folder of the stories is not empty."""
    assert len(STORIES) > 20
