# SPDX-License-Identifier: Apache-2.0
"""Builders of the values that tests put in: keyword-only, with sane defaults."""

from muster.api import model
from muster.api.owner import Owner, controller
from muster.api.status import JobStatus

OWNER = Owner("team", "kubeflow.org", "TFJob", "mnist", "job-uid")
"""The job of `make_job`, as its children name it."""


def reference(*, uid="job-uid", kind="TFJob", name="mnist", api_version="kubeflow.org/v1"):
    """Return the controller reference of a child, by default of `make_job`'s job."""
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}


def make_owner(namespace="team", **fields):
    """Return whom a `reference` means, in that namespace."""
    return controller({"namespace": namespace, "ownerReferences": [reference(**fields)]})


def make_template(*, requests=None, scheduler="", priority="", metadata=None, **spec):
    """Return a pod template with one container that asks for `requests`."""
    container = {"name": "tensorflow", "image": "train:1"}
    if requests:
        container["resources"] = {"requests": requests}
    spec = {"containers": [container], **spec}
    if scheduler:
        spec["schedulerName"] = scheduler
    if priority:
        spec["priorityClassName"] = priority
    return {"metadata": metadata or {}, "spec": spec}


def make_replica(*, type="Worker", replicas=1, restart_policy="Never", template=None):  # noqa: A002
    """Return one role of a job."""
    return model.Replica(type, replicas, restart_policy, model.packed(template or make_template()))


def make_job(*, replicas=None, scheduling=None, kind="TFJob", name="mnist", **fields):
    """Return a TFJob of two workers; `scheduling` are fields of its SchedulingPolicy."""
    policy = model.RunPolicy(scheduling=model.SchedulingPolicy(**(scheduling or {})))
    values = {
        "kind": kind,
        "api_version": "kubeflow.org/v1",
        "namespace": "team",
        "name": name,
        "uid": "job-uid",
        "generation": 1,
        "created": 0.0,
        "deleting": False,
        "labels": {},
        "annotations": {},
        "replicas": tuple(replicas or (make_replica(replicas=2),)),
        "run_policy": policy,
        "options": {"successPolicy": "", "enableDynamicWorker": False},
        "status": JobStatus(),
    }
    return model.Job(**(values | fields))


def make_pod(*, name="mnist-worker-0", phase="Pending", owner=OWNER, **fields):
    """Return a pod of `make_job`'s job, by default the first worker, created at time 0."""
    values = {
        "namespace": "team",
        "name": name,
        "uid": f"uid-{name}",
        "owner": owner,
        "role": "worker",
        "index": 0,
        "phase": phase,
        "deleting": False,
        "node": "",
        "created": 0.0,
    }
    return model.PodView(**(values | fields))


def make_group(*, document=None, api_version="", kind="PodGroup", spec=None, **fields):
    """Return a group on the server: that of a wanted document, if one is given."""
    document = document or {"apiVersion": api_version, "kind": kind, "spec": spec or {}}
    values = {
        "api_version": document["apiVersion"],
        "kind": document["kind"],
        "namespace": "team",
        "name": "mnist",
        "uid": "group-uid",
        "owner": OWNER,
        "deleting": False,
        "spec": document["spec"],
    }
    return model.GroupView(**(values | fields))
