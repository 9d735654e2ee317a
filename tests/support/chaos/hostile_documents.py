# SPDX-License-Identifier: Apache-2.0
"""Documents that somebody writes who wishes the others ill, or knows no better.

Those of a tenant are jobs of every sort, twisted; an editor writes all that ClusterRole `edit`
lets him write in his namespace. A document that the API server refuses has done no harm.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from support.builders.job_kinds import SORTS
from support.e2e.harness import Json
from support.e2e.kinds import job, roles_of

TENANT, EDITOR = "tenant", "editor"
MANY = 2**31 - 1
VAST = 2**63 - 1
ENDLESS = "1e1002"
CLAIM: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


@dataclass(frozen=True, slots=True)
class Document:
    """What is written, and by whom."""

    name: str
    writer: str
    body: Json


Twist = Callable[[Json, Json, Json], Any]
"""Changes the job, given its run policy and the pod template of its workers."""


def _requests(amounts: Mapping[str, str]) -> Twist:
    def twist(_job: Json, _policy: Json, template: Json) -> None:
        template["spec"]["containers"][0]["resources"] = {"requests": dict(amounts)}

    return twist


def _pod(**fields: Any) -> Twist:
    return lambda _job, _policy, template: template["spec"].update(copy.deepcopy(fields))


def _policy(**fields: Any) -> Twist:
    return lambda _job, policy, _template: policy.update(copy.deepcopy(fields))


def _gang(**fields: Any) -> Twist:
    return _policy(schedulingPolicy=fields)


def _meta(**fields: Any) -> Twist:
    return lambda _job, _policy, template: template["metadata"].update(copy.deepcopy(fields))


def _own(**fields: Any) -> Twist:
    return lambda job_, _policy, _template: job_["metadata"].update(copy.deepcopy(fields))


def _replicas(count: int) -> Twist:
    def twist(job_: Json, _policy: Json, _template: Json) -> None:
        roles(job_)["Worker"]["replicas"] = count

    return twist


def _claim(storage: str, **metadata: Any) -> Twist:
    spec = {**CLAIM, "resources": {"requests": {"storage": storage}}}
    ephemeral = {"volumeClaimTemplate": {"metadata": metadata, "spec": spec}}
    return _pod(volumes=[{"name": "scratch", "ephemeral": ephemeral}])


def _containers(count: int, **amounts: str) -> Twist:
    resources = {"requests": amounts}

    def twist(_job: Json, _policy: Json, template: Json) -> None:
        first = template["spec"]["containers"][0]
        more = [{**first, "name": f"more-{i}", "resources": resources} for i in range(count)]
        template["spec"]["containers"] += more

    return twist


def _node_affinity(operator: str, value: str, weight: int = 0) -> Twist:
    term = {"matchExpressions": [{"key": "size", "operator": operator, "values": [value]}]}
    wanted: Json = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
    }
    if weight:
        preferred = {"weight": weight, "preference": term}
        wanted = {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}
    return _pod(affinity={"nodeAffinity": wanted})


def _spread(**fields: Any) -> Twist:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
        **fields,
    }
    return _pod(topologySpreadConstraints=[constraint])


def _twice(*twists: Twist) -> Twist:
    def twist(job_: Json, policy: Json, template: Json) -> None:
        for one in twists:
            one(job_, policy, template)

    return twist


def _elsewhere(job_: Json, _policy: Json, template: Json) -> None:
    template["metadata"].update(name="victim", namespace="default", uid="victim")


_ANYWHERE = _pod(tolerations=[{"operator": "Exists"}])
TWISTS: Mapping[str, Twist] = {
    "endless-cpu": _requests({"cpu": ENDLESS}),
    "endless-memory": _requests({"memory": "1e9999"}),
    "tiny-cpu": _requests({"cpu": "1e-999"}),
    "negative-cpu": _requests({"cpu": "-1"}),
    "odd-quantity": _requests({"cpu": "1000e999"}),
    "most-cpu": _requests({"cpu": "9223372036854775807"}),
    "beyond-cpu": _requests({"cpu": "9223372036854775808"}),
    "long-number": _requests({"cpu": "1" * 5000}),
    "sums-beyond": _containers(60, memory="8Pi", cpu="9e17"),
    "many-containers": _containers(1023, memory="8Pi"),
    "invented": _requests({f"x.example/r{i}": "1" for i in range(500)}),
    "endless-claim": _claim(ENDLESS),
    "negative-claim": _claim("-1"),
    "named-claim": _claim("1Gi", name="victim", namespace="default"),
    "claim-of-uid": _twice(_claim(ENDLESS), _meta(uid="0")),
    "own-node": _twice(_requests({"cpu": "1000e999"}), _pod(nodeName="nowhere")),
    "on-a-node": _pod(nodeName="tenants-1"),
    "greater-than-long": _node_affinity("Gt", "9" * 5000),
    "greater-than-word": _node_affinity("Gt", "many"),
    "unknown-operator": _node_affinity("Perhaps", "1"),
    "least-weight": _node_affinity("Gt", "1", weight=-(2**31)),
    "most-weight": _node_affinity("Exists", "1", weight=MANY),
    "negative-domains": _spread(minDomains=-1),
    "most-domains": _spread(minDomains=MANY),
    "no-skew": _spread(maxSkew=0),
    "negative-skew": _spread(maxSkew=-MANY),
    "long-key": _spread(topologyKey="z" * 5000),
    "most-replicas": _replicas(MANY),
    "many-replicas": _replicas(200_000),
    "no-replicas": _replicas(0),
    "endless-deadline": _policy(activeDeadlineSeconds=10**15),
    "longest-deadline": _policy(activeDeadlineSeconds=VAST),
    "most-backoff": _policy(backoffLimit=MANY),
    "late-ttl": _policy(ttlSecondsAfterFinished=MANY),
    "least-available-most": _gang(minAvailable=MANY),
    "least-available-none": _gang(minAvailable=0),
    "endless-minimum": _gang(minResources={"cpu": ENDLESS}),
    "negative-minimum": _gang(minResources={"cpu": "-1"}),
    "nobodys-queue": _gang(queue="nobodys"),
    "long-queue": _gang(queue="q" * 253),
    "endless-timeout": _gang(scheduleTimeoutSeconds=MANY),
    "critical": _gang(priorityClass="system-node-critical"),
    "critical-anywhere": _twice(_gang(priorityClass="system-node-critical"), _ANYWHERE),
    "high-anywhere": _twice(_gang(priorityClass="hostile-high"), _ANYWHERE),
    "critical-pods-anywhere": _twice(_pod(priorityClassName="system-node-critical"), _ANYWHERE),
    "nobodys-class": _gang(priorityClass="nobodys"),
    "critical-pods": _pod(priorityClassName="system-node-critical"),
    "own-priority": _pod(priority=MANY),
    "finalizer": _meta(finalizers=["example.com/never"]),
    "owner": _meta(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]),
    "elsewhere": _elsewhere,
    "generated": _meta(generateName="victim-"),
    "control": _own(annotations={"training.kubeflow.org/note": "a\nE forged\x1b[31m"}),
    "bad-label": _meta(labels={"a b c": "\n"}),
    "labels-of-ours": _meta(labels={"training.kubeflow.org/job-name": "run-tfjob"}),
    "many-labels": _meta(labels={f"l{i}": "v" for i in range(5000)}),
    "unknown-scheduler": _pod(schedulerName="nobody"),
    "gates": _pod(schedulingGates=[{"name": "example.com/never"}]),
    "unknown-runtime": _pod(runtimeClassName="nobody"),
    "service-account": _pod(serviceAccountName="muster"),
    "host": _pod(hostNetwork=True, hostPID=True),
    "overhead": _pod(overhead={"cpu": ENDLESS}),
    "seconds": _pod(terminationGracePeriodSeconds=VAST),
    "tolerates": _pod(tolerations=[{"operator": "Exists", "tolerationSeconds": VAST}]),
    "no-containers": _pod(containers=[]),
    "no-image": lambda _j, _p, t: t["spec"]["containers"][0].pop("image"),
    "managed-by": _policy(managedBy="example.com/somebody"),
    "nothing": lambda j, _p, _t: roles(j).clear(),
}  # fmt: skip
"""What is wrong with a job -> how it comes about."""


def roles(document: Json) -> Json:
    """Return the roles of a job."""
    found: Json
    (found,) = (v for v in document["spec"].values() if isinstance(v, dict) and "Worker" in v)
    return found


def of_tenant() -> Iterator[Document]:
    """Yield every twist of every sort of job."""
    for twist, sort in ((t, s) for t in TWISTS for s in SORTS):
        assert "Worker" in roles_of(sort)
        body = job(sort, f"{twist}-{sort.lower()}", run="forever", cpu="1", backoffLimit=1)
        policy = body["spec"]["runPolicy"]
        TWISTS[twist](body, policy, roles(body)["Worker"]["template"])
        yield Document(f"{twist}-{sort}", TENANT, body)


def of_editor(victim: str, uids: Mapping[str, str]) -> Iterator[Document]:
    """Yield what an editor makes of a victim's names and uids, by name of a job of its."""
    for name, uid in sorted(uids.items()):
        row = next((SORTS[s] for s in SORTS if name.endswith(f"-{s.lower()}")), SORTS["TFJob"])
        owner: Json = {"apiVersion": row.api_version, "kind": row.kind, "name": name, "uid": uid}
        owner["controller"] = True
        for body in _stolen(name, victim):
            body["metadata"]["ownerReferences"] = [owner]
            yield Document(f"{body['kind']}-of-{name}", EDITOR, body)
        group = {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "PodGroup"}
        for amount in ("-1", ENDLESS):
            spec = {"minMember": MANY, "minResources": {"cpu": amount}}
            told = {"name": f"{name}{amount.strip('-')}", "labels": _labels(name)}
            yield Document(
                f"group{amount}-of-{name}", EDITOR, {**group, "metadata": told, "spec": spec}
            )
    yield from (Document(f"alone-{n}", EDITOR, body) for n, body in enumerate(_alone()))


def _labels(name: str) -> dict[str, str]:
    prefix = "training.kubeflow.org/"
    told = {"job-name": name, "replica-type": "worker", "replica-index": "0"}
    return {f"{prefix}{key}": value for key, value in told.items()}


def _stolen(name: str, victim: str) -> Iterator[Json]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    for scheduler in ("muster", "default-scheduler"):
        metadata = {"name": f"{name}-worker-0", "labels": _labels(name)}
        metadata["name"] += "" if scheduler == "muster" else "-x"
        spec = {"schedulerName": scheduler, "containers": [container]}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    template = {
        "metadata": {"labels": _labels(name)},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }
    yield {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{name}-launcher", "labels": _labels(name)},
        "spec": {"template": template},
    }
    for kind, suffix in (("ConfigMap", "-config"), ("Secret", "-ssh"), ("Service", "-worker-0")):
        metadata = {"name": name + suffix, "labels": _labels(name)}
        body: Json = {"apiVersion": "v1", "kind": kind, "metadata": metadata}
        yield {**body, "spec": {"clusterIP": "None"}} if kind == "Service" else body
    lease = {"holderIdentity": victim, "leaseDurationSeconds": MANY}
    yield {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "muster"},
        "spec": lease,
    }


def _alone() -> Iterator[Json]:
    for amount in (ENDLESS, "1000e999", "9" * 5000):
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": amount}}}
        for node in ("", "nowhere", "tenants-1"):
            spec = {"schedulerName": "muster", "containers": [container], "nodeName": node}
            name = f"pod-{len(amount)}-{node}x"
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        metadata = {"name": f"claim-{len(amount)}x"}
        spec = {**CLAIM, "resources": {"requests": {"storage": amount}}}
        kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        yield {**kind, "metadata": metadata, "spec": spec}
    for share in ("-5", "9" * 300, "1000%", "nonsense"):
        spec = {"minAvailable": share, "selector": {}}
        kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
        yield {**kind, "metadata": {"name": f"budget-{len(share)}"}, "spec": spec}
