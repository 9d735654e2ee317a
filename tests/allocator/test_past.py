# SPDX-License-Identifier: Apache-2.0
"""Who held what before: what is noted when it ends, how much of it, and for how long."""

from dataclasses import replace

import pytest

from muster.allocator import past, view
from muster.allocator.past import Past
from support.builders import sample_clusters
from support.builders.scheduler import make_gang, make_node, make_pod, make_role

_, SEEN = sample_clusters.small()
NOW = SEEN.snapshot.now
CHURN = "XGBoostJob/ranking/churn"


def at(snapshot, seconds):
    """Return the same, so much later."""
    return replace(snapshot, now=NOW + seconds)


def test_what_a_gang_held_is_noted_when_it_goes():
    """Since when, till when, of which node how much; all is known since the first look."""
    noted = Past()
    noted.saw(SEEN.snapshot)
    noted.catch_up()
    assert (noted.after(0), noted.since) == ([], NOW)
    gone = at(sample_clusters.without(SEEN, CHURN).snapshot, 30)
    noted.saw(gone)
    noted.catch_up()
    (row,) = noted.after(0)
    assert row == (1, "gpu-c-4", CHURN, "worker", "0-1", 1.0, NOW - 300, NOW + 30)
    # Nothing is noted twice, and who has it already is told no more of it.
    noted.take(at(gone, 31))
    assert (noted.after(0), noted.after(1)) == ([row], [])


def hold(held, uid="u", started=()):
    """Return what is seen of one gang whose tasks are there."""
    role = make_role(held=held, gpu=1, started=started)
    gang = make_gang(key="TFJob/team/a", uid=uid, roles=[role], started=100.0, admitted=True)
    nodes = [make_node(name=name, gpu=4) for name in ("n1", "n2")]
    return sample_clusters.saw(nodes, [gang], ())[1].snapshot


def test_tasks_that_go_alone_are_noted_alone():
    """And those of a gang of the same name that is another one, all."""
    both = hold([(0, "n1"), (1, "n1"), (2, "n2")])
    noted = Past()
    noted.take(both)
    noted.take(hold([(0, "n1"), (2, "n2")]))
    assert [row[1:6] for row in noted.after(0)] == [("n1", "TFJob/team/a", "worker", "1", 1.0)]
    noted.take(hold([(0, "n1"), (2, "n2")], uid="other"))
    assert [row[1:5] for row in noted.after(1)] == [
        ("n1", "TFJob/team/a", "worker", "0"), ("n2", "TFJob/team/a", "worker", "2"),
    ]  # fmt: skip


def test_a_node_that_goes_is_noted_with_what_it_was():
    """Its devices are those that it had."""
    noted = Past()
    noted.take(hold([(0, "n1")]))
    noted.take(sample_clusters.saw([make_node(name="n2", gpu=4)], [], ())[1].snapshot)
    assert [row[1:6] for row in noted.after(0)] == [("n1", "TFJob/team/a", "worker", "0", 1.0)]


@pytest.mark.parametrize(("kept", "later"), [(2, 0.0), (50_000, view.PAST + 1)])
def test_no_more_is_kept_than_there_is_room_and_time_for(monkeypatch, kept, later):
    """Of what is dropped it is not said that it is known."""
    monkeypatch.setattr(past, "KEPT", kept)
    noted = Past()
    noted.take(SEEN.snapshot)
    noted.take(at(sample_clusters.without(SEEN, "PyTorchJob/vision/vit-pretrain").snapshot, 10))
    noted.take(at(replace(SEEN.snapshot, gangs=()), 20 + later))
    rows = noted.after(0)
    assert len(rows) == (2 if later == 0.0 else 15)
    assert noted.since >= NOW + 10
    assert all(row[-1] >= noted.since for row in rows)
    assert rows[-1][0] == 21


def test_others_names_are_not_told():
    """Only that somebody held so much."""
    noted = Past()
    noted.take(SEEN.snapshot)
    noted.take(at(replace(SEEN.snapshot, gangs=()), 20))
    rows = noted.after(0)
    told = list(past.seen_by(rows, {"ranking"}))
    assert {row[2].split("/")[1] for row in told if row[2]} == {"ranking"}
    assert "llama" not in str(told)

    def amounts(rows):
        return [(row[0], row[1], row[5] * view.count(row[4]), *row[6:]) for row in rows]

    assert amounts(told) == amounts(rows)


def test_pods_of_nobody_are_not_noted():
    """Nobody has said since when they are there."""
    pod = make_pod(gpu=3, node="n1")
    noted = Past()
    noted.take(sample_clusters.saw([make_node(name="n1", gpu=4)], [], (), [pod])[1].snapshot)
    noted.take(sample_clusters.saw([make_node(name="n1", gpu=4)], [], ())[1].snapshot)
    assert noted.after(0) == []
