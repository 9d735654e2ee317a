# SPDX-License-Identifier: Apache-2.0
"""PyTorchJob: a master and workers, or workers alone; elastic ones meet at a rendezvous."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from muster.api import names, schema
from muster.api.edge import integer, mapping, sequence, text
from muster.api.jobs import Kind
from muster.api.model import Job, Json, Notice, Problem, Replica
from muster.frameworks import base, master_worker
from muster.frameworks.base import Waiting
from muster.frameworks.master_worker import MASTER, WORKER

_PER_KIND: Final = ("auto", "cpu", "gpu")
_BACKENDS: Final = ("c10d", "etcd", "etcd-v2")
_NNODES: Final = re.compile(r"""(?<![\w-])--?nnodes(?![\w-])[=\s]*["']?([^\s"';&|)]*)""")
"""torchrun's option, as an argument of its own or inside a shell script, and its value."""
_NODE_RANGE: Final = re.compile("([0-9]{1,9}):[0-9]{1,9}")


def _processes(job: Job) -> str:
    """Return how many processes a pod starts, as torchrun takes it; empty if nobody says."""
    written = text(job.options["nprocPerNode"])
    old = (master_worker.elastic(job) or {}).get("nProcPerNode")
    return written or ("auto" if old is None else "")


def _environment(job: Job, replica: Replica, _domain: str) -> base.Environment:
    master, processes = job.replica(MASTER), _processes(job)
    # As training-operator: auto, cpu and gpu are known only in the pod, and count as 1.
    size = job.total * (int(processes) if processes.isdecimal() else 1)
    before = (master_worker.UNBUFFERED, *_meeting(job), base.variable("WORLD_SIZE", size))
    after = (
        *((base.variable("PET_NPROC_PER_NODE", processes),) if processes else ()),
        *_members(job),
    )
    # Without a master the rendezvous assigns ranks; fixed ones would contradict it.
    if master is None:
        return base.Environment(entries=lambda _index: (master_worker.UNBUFFERED, *after))
    # The master is rank 0.
    first = 0 if replica.type == MASTER else 1

    def entries(index: int) -> Sequence[Json]:
        ranks = (base.variable(name, first + index) for name in ("RANK", "PET_NODE_RANK"))
        return (*before, *ranks, *after)

    return base.Environment(entries=entries)


def _meeting(job: Job) -> Iterator[Json]:
    """Yield where the master listens, for programs of their own and for torchrun."""
    port = master_worker.port_of(PYTORCH, job, MASTER)
    address = master_worker.first_of(job, MASTER)
    for name, value in (("MASTER_PORT", port), ("MASTER_ADDR", address)):
        yield base.variable(name, value)
        yield base.variable(f"PET_{name}", value)


def _members(job: Job) -> Iterator[Json]:
    policy = master_worker.elastic(job)
    if policy is None:
        yield base.variable("PET_NNODES", job.total)
        return
    least, most = master_worker.span(job, policy)
    host = text(policy.get("rdzvHost")) or master_worker.first_of(job, WORKER)
    port = integer(policy.get("rdzvPort")) or master_worker.port_of(PYTORCH, job, WORKER)
    yield base.variable("PET_RDZV_ENDPOINT", f"{host}:{port}")
    yield base.variable("PET_RDZV_BACKEND", text(policy.get("rdzvBackend")) or "c10d")
    yield base.variable("PET_NNODES", f"{least}:{most}")
    for name, field in (
        ("PET_MAX_RESTARTS", "maxRestarts"),
        ("PET_NPROC_PER_NODE", "nProcPerNode"),
        ("PET_RDZV_ID", "rdzvId"),
    ):
        if policy.get(field) is not None:
            yield base.variable(name, policy[field])
    settings = [mapping(item) for item in sequence(policy.get("rdzvConf"))]
    if settings:
        pairs = (f"{text(item.get('key'))}={text(item.get('value'))}" for item in settings)
        yield base.variable("PET_RDZV_CONF", ",".join(pairs))
    if policy.get("standalone") is True:
        yield base.variable("PET_STANDALONE", "")


def _init_containers(job: Job, replica: Replica, waiting: Waiting) -> Sequence[Json]:
    if replica.type != WORKER or job.replica(MASTER) is None:
        return ()
    own = base.framework_container(PYTORCH, replica.template)
    if not waiting.image:
        # It is pulled in any case, and whoever lets the program in has let it in.
        policy = text(own.get("imagePullPolicy")) or waiting.policy
        waiting = replace(waiting, image=text(own.get("image")), policy=policy)
    address = master_worker.first_of(job, MASTER)
    return base.init_containers("init-pytorch", waiting, address, own)


def _outcome(job: Job, seen: base.Progress) -> Sequence[base.Outcome]:
    elastic = master_worker.elastic(job) is not None
    return master_worker.outcome(job, seen, one_is_enough=elastic)


def _minimum(job: Job) -> int | None:
    """Return how many pods an elastic job needs: its master and the fewest workers.

    All pods if a command fixes the number of nodes or is unreadable, never more than are wanted.
    """
    policy = master_worker.elastic(job)
    if policy is None:
        return None
    workers = job.replica(WORKER)
    others = job.total - (workers.replicas if workers else 0)
    needs = [_fewest_nodes(replica) for replica in job.replicas]
    stated = [job.total if need is None else need for need in needs]
    return min(max((master_worker.span(job, policy)[0] + others, *stated)), job.total)


def _fewest_nodes(replica: Replica) -> int | None:
    """Return the minimum of the role's last `--nnodes`: 0 without one, None if it is no range."""
    if not sequence(mapping(replica.template.get("spec")).get("containers")):
        return 0  # an invalid job
    container = base.framework_container(PYTORCH, replica.template)
    words = (*sequence(container.get("command")), *sequence(container.get("args")))
    values = _NNODES.findall(" ".join(map(text, words)))
    if not values:
        return 0
    nodes = _NODE_RANGE.fullmatch(values[-1])
    return int(nodes[1]) if nodes else None


def _validate(job: Job, _domain: str) -> Iterator[Problem]:
    path, workers = f"spec.{PYTORCH.spec_field}[{WORKER}]", job.replica(WORKER)
    if workers is not None and workers.replicas < 1:
        yield Problem(f"{path}.replicas", "Forbidden: must be at least 1")
    if workers is None and master_worker.elastic(job) is not None:
        yield Problem(path, "Required value: must be configured if elastic policy is used")
    yield from _one_number_of_processes(job)
    yield from master_worker.of_span(job)
    backend = (master_worker.elastic(job) or {}).get("rdzvBackend")
    if backend not in (None, "", *_BACKENDS):
        yield base.unsupported("spec.elasticPolicy.rdzvBackend", backend, _BACKENDS)


def _one_number_of_processes(job: Job) -> Iterator[Problem]:
    written = job.options["nprocPerNode"]
    if written is None:
        return
    if (master_worker.elastic(job) or {}).get("nProcPerNode") is not None:
        path = "spec.elasticPolicy.nProcPerNode"
        yield Problem(path, "Forbidden: must not be used with spec.nprocPerNode")
    number = text(written)
    # WORLD_SIZE is the product with the number of pods.
    if not (number in _PER_KIND or re.fullmatch("[0-9]{1,9}", number)):
        detail = schema.unsupported(written, _PER_KIND)
        yield Problem("spec.nprocPerNode", f"{detail}, a number in quotes")


def _notices(job: Job) -> Iterator[Notice]:
    if (master_worker.elastic(job) or {}).get("nProcPerNode") is not None:
        message = "spec.elasticPolicy.nProcPerNode is deprecated, use spec.nprocPerNode instead"
        yield Notice("Warning", names.Event.DEPRECATED_FIELD, message)


PYTORCH: Final = base.Framework(
    api=Kind(
        name="PyTorchJob",
        plural="pytorchjobs",
        short="ptj",
        spec_field="pytorchReplicaSpecs",
        types=(MASTER, WORKER),
        single=(MASTER,),
    ),
    operator=base.Operator("pytorchjob-controller", metric="pytorch"),
    roles=base.Roles(restart_policy="OnFailure", is_master=master_worker.master_or_first),
    pods=base.Pods(
        container="pytorch",
        port_name="pytorchjob-port",
        port=23456,
        environment=_environment,
        init_containers=_init_containers,
    ),
    life=base.Life(outcome=_outcome, selectors=True),
    spec=base.Spec(
        options={"nprocPerNode": None, "elasticPolicy": None},
        validate=_validate,
        notices=_notices,
    ),
    gang=base.Gang(minimum=_minimum),
    autoscaler=master_worker.autoscaler,
)
