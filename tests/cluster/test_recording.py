# SPDX-License-Identifier: Apache-2.0
"""What a cycle saw, as a file: equal bytes for equal views, and the same decisions again."""

import json
import math
from dataclasses import replace

import pytest

from muster.cluster import quota, recording
from muster.cluster.quota import LimitView, QuotaView, Scope
from muster.cluster.runtimeclass import RuntimeView
from muster.scheduler import policy
from muster.scheduler.model import Quota
from support.builders.scheduler import make_gang, make_node, make_pod, make_role
from support.builders.snapshots import moving, rich, seen

BINPACK = policy.parse({"tiers": [{"plugins": [{"name": "gang"}, {"name": "binpack"}]}]})


@pytest.mark.parametrize(
    "chosen", [policy.DEFAULT, BINPACK, moving()], ids=["default", "binpack", "moving"]
)
def test_a_file_decides_the_same_again(chosen):
    """Byte for byte, and a file that is written again is the same file."""
    view, decisions = rich(chosen=chosen)
    assert view.moves == (() if chosen.moves else None)
    text = recording.dump(view, decisions)
    again, saved = recording.load(text)
    assert recording.decisions_text(again.decide()) == saved == recording.decisions_text(decisions)
    assert recording.dump(again, again.decide()) == text


def test_a_file_is_the_same_in_whatever_order_all_came():
    """A process that has just started knows it in another one than who has run for days."""
    nodes = [make_node(name=f"n{i}") for i in range(3)]
    pods = [make_pod(name=f"p{i}", node=f"n{i}", cpu=1) for i in range(3)]
    runtimes = [RuntimeView("a"), RuntimeView("b")]
    one = seen(gangs=(), nodes=nodes, pods=pods, runtimes=runtimes)
    other = seen(gangs=(), nodes=nodes[::-1], pods=pods[::-1], runtimes=runtimes[::-1])
    assert one[0].nodes != other[0].nodes
    assert recording.dump(*one) == recording.dump(*other)


def test_quotas_are_decided_again():
    """With the pods that were about to be created, which are counted once."""
    few = QuotaView("team", "few", {"pods": 4000}, {"pods": 1000}, (Scope("NotTerminating"),))
    role = make_role(replicas=2, charge={"team/few/pods": 1000})
    view, decisions = seen(
        gangs=[
            make_gang(key="team/a", pending={"team/few/pods": 2000}),
            make_gang(key="team/b", roles=[role]),
        ],
        quotas=[few],
        ranges=[LimitView("team", "range", ({"type": "Pod", "max": {"cpu": "1"}},))],
    )
    (waits,) = (d.verdict for d in decisions if d.gang == "team/b")
    assert "1 of 4 are left" in waits.message
    text = recording.dump(view, decisions)
    again, saved = recording.load(text)
    assert recording.decisions_text(again.decide()) == saved == recording.decisions_text(decisions)
    assert recording.dump(again, again.decide()) == text
    assert list(quota.views_of(again.quotas, again.quota_scopes)) == [few]
    assert again.ranges == view.ranges


def test_files_from_before_scopes_were_written():
    """Of their quotas the pods that were about to be created are taken already."""
    role = make_role(replicas=2, charge={"t/few/pods": 1000})
    view, _ = seen(gangs=[make_gang(key="t/a", roles=[role])])
    few = {"t/few/pods": Quota("t/few", "pods", 4000, 3000)}
    text = recording.dump(replace(view, quotas=few), ())
    assert "quota_scopes" not in text
    again, _ = recording.load(text)
    assert again.snapshot().quotas == few
    assert "1 of 4 are left" in again.decide()[0].verdict.message


def test_sets_are_sorted():
    """Their order differs from process to process."""
    ports = frozenset({"b", "c", "a"})
    assert recording.plain(ports) == ["a", "b", "c"]


def test_a_time_that_never_comes_can_be_written():
    """JSON has no infinity, and a task whose pod is only promised has not begun."""
    role = make_role(held=[(0, "n1")], started=[math.inf], waiting=[1], cpu=9)
    text = recording.dump(*seen(gangs=[make_gang(roles=[role])]))
    json.loads(text, parse_constant=pytest.fail)
    again, _ = recording.load(text)
    assert again.gangs[0].roles[0].started == [math.inf]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[]", "not a snapshot"),
        ('{"format": "other"}', "not a snapshot"),
        (json.dumps({"format": recording.FORMAT, "saw": {"now": 1}}), "saw.resources"),
    ],
)
def test_another_file_is_refused(text, why):
    """With a sentence that says where it is wrong."""
    with pytest.raises(recording.UnreadableError, match=why):
        recording.load(text)
