# SPDX-License-Identifier: Apache-2.0
"""Machine halls as the page shows them: a small one with a story, large ones, and who may look."""

from dataclasses import replace

from muster.allocator.view import Seen
from muster.cluster import recording
from muster.kube.client import ApiError
from muster.scheduler import cycle, policy
from muster.scheduler.model import Topology
from support.builders.scheduler import (
    make_columns,
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
)
from support.builders.snapshots import RULES

RACK = "topology.kubernetes.io/rack"
QUEUES = (
    make_queue(name="research", weight=3),
    make_queue(name="product", weight=2),
    make_queue(name="default"),
)


def running(key, nodes, each, gpu, now, *, queue, ran, left=None):
    """Return a gang with `each` pods on each of these nodes, of so many GPUs."""
    held = [(i, nodes[i // each]) for i in range(each * len(nodes))]
    duration = {} if left is None else {"duration": ran + left}
    role = make_role(held=held, gpu=gpu, cpu=4)
    topo = Topology(level=RACK) if len(nodes) > 2 else None
    return make_gang(
        key=key, queue=queue, created=now - ran - 90, started=now - ran, admitted=True,
        roles=[role], topology=topo, **duration,
    )  # fmt: skip


def waiting(key, pods, gpu, now, *, queue, since, duration=3600.0, **fields):
    """Return a gang that waits for so many pods."""
    roles = [make_role(replicas=pods, gpu=gpu, cpu=4)]
    return make_gang(
        key=key, queue=queue, created=now - since, duration=duration, roles=roles, **fields
    )


def pods_of(gangs):
    """Yield the pods that hold what the gangs hold."""
    for gang in gangs:
        space, name = gang.key.split("/")[1:]
        for role in gang.roles:
            amounts = dict(role.shape.requests)
            wanted = {
                "gpu": amounts.get("nvidia.com/gpu", 0) // 1000,
                "cpu": amounts.get("cpu", 0) // 1000,
            }
            for index, node in role.held:
                yield make_pod(
                    name=f"{name}-{role.role}-{index}", namespace=space, node=node, **wanted
                )


def saw(nodes, gangs, queues=QUEUES, others=(), now=1000.0):
    """Return the recording of such a hall and what a cycle decides there."""
    columns = make_columns(nodes=nodes, pods=[*pods_of(gangs), *others])
    snapshot = columns.snapshot(gangs, queues, now)
    taken = recording.take(columns, gangs, queues, RULES, snapshot, policy.DEFAULT)
    return taken, Seen(snapshot, cycle.schedule(snapshot, policy.DEFAULT))


def small(now=1_790_000_000.0):
    """Return a hall of 24 nodes in which some run, and some wait for different reasons."""
    names = [f"gpu-{rack}-{i}" for rack in "abc" for i in range(1, 9)]
    nodes = [
        make_node(
            name=name, gpu=8, cpu=96, memory="512Gi", labels={RACK: f"rack-{name[4]}"},
            unschedulable=name == "gpu-c-8",
        )
        for name in names
    ]  # fmt: skip
    gangs = [
        running("PyTorchJob/vision/vit-pretrain", names[0:6], 8, 1, now, queue="research",
                ran=7200.0, left=1500.0),
        running("JAXJob/language/llama-70b", names[8:15], 1, 8, now, queue="research",
                ran=5100.0, left=4000.0),
        running("MPIJob/physics/weather", names[6:8], 4, 1, now, queue="product", ran=2400.0,
                left=700.0),
        running("TFJob/ranking/ads-nightly", names[15:18], 2, 2, now, queue="product", ran=1300.0),
        running("PyTorchJob/speech/whisper-ft", names[18:20], 4, 1, now, queue="default",
                ran=900.0, left=2700.0),
        running("XGBoostJob/ranking/churn", names[19:20], 2, 1, now, queue="product", ran=300.0,
                left=300.0),
        waiting("PyTorchJob/language/rlhf-round-3", 8, 8, now, queue="research", since=1500.0,
                priority=1),
        waiting("PyTorchJob/vision/sam-distill", 4, 8, now, queue="research", since=640.0),
        waiting("JAXJob/physics/fusion-sweep", 40, 2, now, queue="product", since=420.0),
        waiting("TFJob/ranking/embeddings", 2, 16, now, queue="product", since=200.0),
        waiting("PyTorchJob/speech/tts-large", 6, 8, now, queue="default", since=60.0),
    ]  # fmt: skip
    others = [
        make_pod(name=f"notebook-{i}", namespace="notebooks", node=node, gpu=1, cpu=2)
        for i, node in enumerate(("gpu-c-3", "gpu-c-4", "gpu-a-7"))
    ]
    return saw(nodes, gangs, others=others, now=now)


def large(count=10_000, jobs=2_000, now=1_790_000_000.0):
    """Return a hall of so many nodes of 8 GPUs: half of the jobs hold nearly all of it."""
    names = [f"node-{i:05}" for i in range(count)]
    nodes = [make_node(name=name, gpu=8, cpu=96) for name in names]
    runs = jobs // 2
    each = count // runs
    gangs = [
        running(
            f"PyTorchJob/team-{i % 40}/job-{i}", names[i * each : (i + 1) * each], 8, 1, now,
            queue=("research", "product", "default")[i % 3], ran=600.0 + i, left=900.0 + 7 * i,
        )
        for i in range(runs)
    ]  # fmt: skip
    gangs += [
        waiting(f"PyTorchJob/team-{i % 40}/job-{i}", 16, 8, now, queue="research", since=float(i))
        for i in range(runs, jobs)
    ]
    return saw(nodes, gangs, now=now)


def without(seen, key):
    """Return the same hall once a gang has gone."""
    left = tuple(gang for gang in seen.snapshot.gangs if gang.key != key)
    return replace(seen, snapshot=replace(seen.snapshot, gangs=left))


def devices(node):
    """Return whose the devices of a shown node are -> how many."""
    count = {"others": node.get("others", 0), "away": node.get("away", 0)}
    for key, _, ranges, amount, _ in node["held"]:
        runs = (run.split("-") for run in ranges.split(","))
        pods = sum(int(run[-1]) - int(run[0]) + 1 for run in runs)
        count[key] = count.get(key, 0) + amount * pods
    return count


class Server:
    """An API server that knows tokens by what their bearers may list; `*` is everything."""

    def __init__(self, **bearers):
        """Know these."""
        self.bearers, self.asked, self.broken = bearers, 0, False

    async def create(self, path, body, _urgency):
        """Answer a review."""
        self.asked += 1
        spec = body["spec"]
        if "tokenreviews" in path:
            known = spec["token"] in self.bearers
            return {"status": {"authenticated": known, "user": {"username": spec["token"]}}}
        if self.broken and "resourceAttributes" in spec:
            raise ApiError(500, "InternalError", "no answer", None)
        may = self.bearers[spec["user"]]
        if "nonResourceAttributes" in spec:
            return {"status": {"allowed": may is not None}}
        return {
            "status": {"allowed": "*" in may or spec["resourceAttributes"].get("namespace") in may}
        }
