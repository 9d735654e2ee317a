# SPDX-License-Identifier: Apache-2.0
"""The facts of an installation, read from a server with many rights, few and none."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import re
import time

import pytest

from muster import cli, flags
from muster.api import edge
from muster.commands import doctor, questions
from muster.kube.certificates import self_signed
from muster.kube.client import ApiError
from muster.runtime.settings import Settings

LABELS = {"app.kubernetes.io/name": "muster", "app.kubernetes.io/component": "operator"}
APPS = "/apis/apps/v1"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/muster"
HOOK = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/muster"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/muster-system/endpointslices"
TFJOBS = "/apis/kubeflow.org/v1/tfjobs"
V1 = {"name": "v1", "served": True, "storage": True, "schema": {"a": 1}}
OLD = {"name": "v1beta2", "served": True, "storage": False, "schema": {"a": 1}}
CRD = {"metadata": {"name": "tfjobs.kubeflow.org"}, "spec": {"versions": [V1, OLD]}}
DENIED = 'admission webhook "jobs.muster.kubeflow.org" denied the request: its name'


def deployment(*more, ready=2):
    """Return the operator's Deployment with more arguments."""
    container = {"name": "muster", "image": "muster", "args": ["run", "--leader-elect", *more]}
    pod = {"serviceAccountName": "muster", "priorityClassName": "high", "containers": [container]}
    return {
        "metadata": {"namespace": "muster-system", "name": "muster"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": LABELS},
            "template": {"spec": pod},
        },
        "status": {"readyReplicas": ready},
    }


def installed():
    """Return what a healthy cluster answers, by path."""
    now = time.time()
    stamp = edge.format_time(now)
    bundle = self_signed("muster-webhook", now, 7 * 86400.0, hosts=["muster"]).certificate
    client = {
        "service": {"namespace": "muster-system", "name": "muster-webhook"},
        "caBundle": base64.b64encode(bundle).decode(),
    }
    lease = {
        "metadata": {
            "namespace": "muster-system",
            "name": "muster",
            "managedFields": [{"time": stamp}],
        },
        "spec": {"holderIdentity": "pod-1", "renewTime": stamp, "leaseDurationSeconds": 12},
    }
    account = {"kind": "ServiceAccount", "serviceAccount": {"namespace": "muster-system",
                                                            "name": "muster"}}  # fmt: skip
    flow = {
        "priorityLevelConfiguration": {"name": "leader-election"},
        "rules": [{"subjects": [account], "resourceRules": [{"resources": ["leases"]}]}],
    }
    ready = [{"type": "Ready", "status": "True"}]
    node = {"conditions": ready, "allocatable": {"cpu": "4", "pods": "110"}}
    return {
        f"{APPS}/deployments": [deployment("--admission-bind-address=:9443")],
        LEASE: lease,
        "/apis/coordination.k8s.io/v1/leases": [lease],
        f"{CRDS}/tfjobs.kubeflow.org": copy.deepcopy(CRD),
        HOOK: {"webhooks": [{"clientConfig": client}]},
        SLICES: [{"endpoints": [{"conditions": {"ready": True}}]}],
        "/apis/scheduling.incubator.k8s.io/v1alpha1": {
            "resources": [{"kind": "PodGroup"}, {"kind": "Queue"}]
        },
        "/api/v1/nodes": [{"metadata": {"name": "n1"}, "status": node}],
        "/apis/scheduling.k8s.io/v1/priorityclasses": [{"metadata": {"name": "high"}}],
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas": [{"spec": flow}],
    }


class Server:
    """Answers from what is installed; refuses paths that match `forbidden`."""

    namespace = "team"

    def __init__(self, there, *, forbidden="^$", granted=lambda _asked: True, denies=DENIED):
        self.there, self.forbidden, self.granted = there, re.compile(forbidden), granted
        self.denies, self.accounts = denies, set()

    def _look(self, path):
        if self.forbidden.search(path):
            raise ApiError(403, "Forbidden", f'{path} is forbidden: User "me" cannot', None)

    async def clock(self):
        """Return the time."""
        self._look("/version")
        return float(int(time.time()))

    async def get(self, path, **_params):
        """Return a document or a list."""
        self._look(path)
        found = self.there.get(path)
        if found is None:
            raise ApiError(404, "NotFound", path, None)
        return {"items": found} if isinstance(found, list) else found

    async def create(self, path, review, _urgency):
        """Answer an access review."""
        self._look(path)
        self.accounts.add(review["spec"].get("user"))
        return {"status": {"allowed": self.granted(review["spec"]["resourceAttributes"])}}

    async def dry_run(self, path, body, _urgency):
        """Refuse the job as the webhook does, or somebody else."""
        self._look(path)
        assert path == f"{TFJOBS.replace('v1/', 'v1/namespaces/team/')}"
        assert body["kind"] == "TFJob"
        if self.denies:
            raise ApiError(422, "Invalid", self.denies, None)

    async def close(self):
        """Do nothing: there is no connection."""


@pytest.fixture
def ask(monkeypatch):
    """Return a function that asks the doctor about a server; the answer is code and findings."""
    monkeypatch.setattr(doctor.crds, "documents", lambda _kinds: {"tfjobs.yaml": CRD})

    def ask(server, *, as_json=True):
        async def connect(*_args):
            return server

        monkeypatch.setattr(questions, "connect", connect)
        answer = asyncio.run(doctor.doctor(Settings(), flags.parse, "", as_json=as_json))
        if not as_json:
            return answer.code, answer.text
        made = json.loads(answer.text)
        assert made["code"] == answer.code
        return answer.code, made["findings"]

    return ask


def test_a_healthy_installation(ask):
    """Is said to be well; its account is asked about, and not one's own."""
    server = Server(installed())
    assert ask(server) == (0, [])
    assert server.accounts == {"system:serviceaccount:muster-system:muster"}
    assert ask(server, as_json=False) == (0, "ok       nothing is wrong\n")


def without(*paths):
    """Return what is installed without these."""
    return {path: found for path, found in installed().items() if path not in paths}


def changed(path, **fields):
    """Return what is installed, one document changed."""
    there = installed()
    return {**there, path: {**there[path], **fields}}


def of_versions(*versions):
    """Return what is installed, with these versions in the CRD."""
    return changed(f"{CRDS}/tfjobs.kubeflow.org", spec={"versions": list(versions)})


PULLS = {
    "status": {
        "containerStatuses": [
            {"state": {"waiting": {"reason": "ErrImagePull", "message": "a\nb"}}}
        ],
        "conditions": [{"type": "PodScheduled", "status": "True"}],
    }
}
WAITS = {
    "metadata": {"name": "mnist", "namespace": "team", "uid": "u"},
    "spec": {
        "tfReplicaSpecs": {
            "Worker": {
                "template": {
                    "spec": {
                        "containers": [
                            {
                                "name": "tensorflow",
                                "image": "i",
                                "resources": {"limits": {"nvidia.com/gpu": 1}},
                            }
                        ]
                    }
                }
            }
        }
    },
}
PODS = "/api/v1/namespaces/muster-system/pods"


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (without(f"{APPS}/deployments", LEASE), "no operator is installed"),
        (without(f"{CRDS}/tfjobs.kubeflow.org"), "no CRD tfjobs.kubeflow.org"),
        (
            changed(
                f"{CRDS}/tfjobs.kubeflow.org", spec={"versions": [{**V1, "schema": {"a": 0}}]}
            ),
            "v1 has another schema",
        ),
        (
            changed(f"{CRDS}/tfjobs.kubeflow.org", spec={"versions": [{**V1, "served": False}]}),
            "v1 is not served",
        ),
        (of_versions(V1), "no version v1beta2"),
        (
            {**installed(), f"{APPS}/deployments": [deployment(ready=0)], PODS: [PULLS]},
            "is ready: ErrImagePull: a b",
        ),
        ({**installed(), f"{APPS}/deployments": [deployment("--oops")]}, "unknown flag --oops"),
        ({**installed(), SLICES: []}, "nobody is behind the service"),
        (changed(HOOK, webhooks=[{"clientConfig": {"caBundle": "no"}}]), "no certificate"),
        ({**installed(), TFJOBS: [WAITS]}, "no node offers nvidia.com/gpu"),
        (changed(LEASE, spec={"holderIdentity": ""}), "nobody leads"),
    ],
)
def test_what_is_broken_is_told(ask, there, words):
    """As the server shows it."""
    _, found = ask(Server(there))
    assert words in " ".join(one["what"] for one in found)


def test_old_versions_need_not_be_served(ask):
    """That is the administrator's choice."""
    assert ask(Server(of_versions(V1, {**OLD, "served": False}))) == (0, [])


def test_a_deployment_of_another_operator_with_this_image_is_ours(ask):
    """It has no label of ours, no command, and its own flags."""
    adopted = deployment("--admission-bind-address=:9443")
    adopted["spec"]["selector"] = {"matchLabels": {"app": "training-operator"}}
    del adopted["spec"]["template"]["spec"]["containers"][0]["args"][0]
    there = {**installed(), f"{APPS}/deployments": [adopted]}
    assert ask(Server(there)) == (0, [])
    adopted["spec"]["template"]["spec"]["containers"][0]["args"] = ["dashboard"]
    assert ask(Server({**there, LEASE: None}))[1][0]["what"] == "no operator is installed"


def test_what_its_account_may_not_is_told(ask):
    """In a few words, and with the overlay that grants it."""
    server = Server(installed(), granted=lambda asked: asked["resource"] != "pods")
    code, (found,) = ask(server)
    assert (code, found["check"]) == (2, "permissions")
    assert "create, patch, delete pods" in found["what"]
    assert found["cure"].endswith("manifests/overlays/embedded")


def test_a_webhook_that_lets_everything_in_is_not_reached(ask):
    """That is tried with a job which is not stored."""
    code, (found,) = ask(Server(installed(), denies=False))
    assert (code, found["check"]) == (1, "webhook's reach")


def test_who_may_do_nothing_is_told_what_he_needs(ask):
    """Each fact by its permission; nothing is called wrong."""
    code, found = ask(Server(installed(), forbidden="."))
    assert code == 0
    assert {one["severity"] for one in found} == {"unknown"}
    cures = {one["cure"].removeprefix("have a role grant you: ") for one in found}
    assert {
        "list deployments.apps",
        "list deployments.apps in namespace muster-system",
        "get leases.coordination.k8s.io in namespace muster-system",
        "get customresourcedefinitions.apiextensions.k8s.io",
        "create subjectaccessreviews.authorization.k8s.io",
        "list nodes",
    } <= cures
    text = ask(Server(installed(), forbidden="."), as_json=False)[1]
    assert text.startswith("ok       nothing is wrong, as far as can be seen\nunknown  not looked")


def test_who_may_look_into_his_namespace_sees_his_jobs(ask):
    """And what they wait for in vain."""
    there = {**installed(), "/apis/kubeflow.org/v1/namespaces/team/tfjobs": [WAITS]}
    _, found = ask(Server(there, forbidden=f"^{TFJOBS}$"))
    assert [one["check"] for one in found] == ["what jobs ask for"]


def test_by_the_command_line(ask, capsys):
    """The answer is printed, and the code is that of the findings."""
    ask(Server(installed()))
    assert cli.main(["doctor"]) == 0
    assert capsys.readouterr().out == "ok       nothing is wrong\n"
