# SPDX-License-Identifier: Apache-2.0
"""Whether a pod may go to a node: our word against that of kube-scheduler's own filters."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections import defaultdict

import numpy as np
import pytest

from muster.cluster import nodes, pods, storage
from muster.cluster.assemble import assemble
from muster.cluster.state import ClusterColumns
from muster.cluster.tasks import RoleInput
from muster.local import binaries
from muster.scheduler import policy
from muster.scheduler.ask import Ask
from muster.scheduler.session import Session
from support.builders.scheduler import make_gang, make_queue
from support.chaos.random_clusters import FEATURES, question

PAIRS = int(os.environ.get("MUSTER_ORACLE_PAIRS", "1000"))
"""Of a pod and a node, per feature; `make nightly` asks about ten times as many."""
SEED = int(os.environ.get("MUSTER_ORACLE_SEED", "1"))

STORED = {
    "claims": storage.parse_claim,
    "volumes": storage.parse_volume,
    "classes": storage.parse_class,
    "limits": storage.parse_attach,
}

pytestmark = [pytest.mark.e2e, pytest.mark.full]


@pytest.fixture(scope="module")
def answered():
    """Return each feature's questions with the answers, if the control plane was built here.

    All are asked at once: the program takes longer to start than to answer.
    """
    program = binaries.build_folder() / "controlplane"
    if not program.exists():
        pytest.skip("the control plane was downloaded, not built: kube-scheduler cannot be asked")
    questions = [(feature, asked) for feature in FEATURES for asked in asked_of(feature)]
    lines = "\n".join(json.dumps(asked) for _, asked in questions)
    done = subprocess.run(
        [program, "oracle"], check=False, input=lines, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = defaultdict(list)
    for (feature, asked), line in zip(questions, done.stdout.splitlines(), strict=True):
        found[feature].append((asked, json.loads(line)))
    return found


def ours(asked):
    """Return node -> whether the pod may go there."""
    columns = ClusterColumns()
    for space in asked["namespaces"]:
        columns.space_changed(space["metadata"]["name"], space["metadata"]["labels"])
    for kind, parse in STORED.items():
        for document in asked.get(kind, ()):
            columns.volumes.changed(None, parse(document))
    for node in asked["nodes"]:
        columns.node_changed(None, nodes.parse_node(node))
    for pod in asked["pods"]:
        columns.pod_changed(None, pods.parse_use(pod))
    role = RoleInput("", pods.shape_of(asked["pod"]), waiting=(0,))
    snapshot = assemble(columns, [make_gang(roles=[role])], [make_queue()], 0.0)
    session = Session(snapshot, policy.DEFAULT.openers())
    tasks = session.gangs[0].tasks[0]
    free = session.fit(Ask(session.gangs[0]), tasks).capacity > 0
    free &= tasks.shape.refusal is None
    allowed = session.room.affinity.open(tasks.pod_set.shape)
    marks = free if allowed is None else free & allowed
    # What is decided must be what is checked again before it is carried out.
    again = [columns.fits(name, role.shape) for name in snapshot.nodes.names]
    suits = session.barred(tasks.pod_set.shape)[0] == 0
    assert (marks == (np.array(again) & suits)).all()
    return dict(zip(snapshot.nodes.names, marks.tolist(), strict=True))


def asked_of(feature):
    """Yield questions with at least PAIRS nodes in all."""
    draw, pairs = random.Random(f"{feature} {SEED}"), 0
    while pairs < PAIRS:
        made = question(draw, feature)
        pairs += len(made["nodes"])
        yield made


@pytest.mark.parametrize("feature", FEATURES)
def test_agrees_with_kube_scheduler(answered, feature):
    """On every pair of a pod and a node; both answers occur often."""
    feasible = total = 0
    for asked, verdicts in answered[feature]:
        theirs = {verdict["node"]: "plugin" not in verdict for verdict in verdicts}
        assert ours(asked) == theirs, json.dumps({"asked": asked, "verdicts": verdicts}, indent=1)
        feasible += sum(theirs.values())
        total += len(theirs)
    assert total >= PAIRS
    assert 0.05 < feasible / total < 0.95
