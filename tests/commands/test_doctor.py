# SPDX-License-Identifier: Apache-2.0
"""The facts of an installation, read from a server with many rights, few and none."""

import asyncio
import base64
import copy
import json
import re
import time

import pytest

from muster import cli, flags
from muster.api import edge, names
from muster.commands import doctor, questions
from muster.kube.certificates import self_signed
from muster.kube.client import ApiError
from muster.settings import Settings
from support.apiserver.memory import tfjob
from support.rehearsal.commands import connected

LABELS = {"app.kubernetes.io/name": "muster", "app.kubernetes.io/component": "operator"}
APPS = "/apis/apps/v1"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/muster"
HOOK = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/muster"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/muster-system/endpointslices"
PODS = "/api/v1/namespaces/muster-system/pods"
TFJOBS = "/apis/kubeflow.org/v1/tfjobs"
V1 = {"name": "v1", "served": True, "storage": True, "schema": {"a": 1}}
OLD = {"name": "v1beta2", "served": True, "storage": False, "schema": {"a": 1}}
CRD = {"metadata": {"name": "tfjobs.kubeflow.org"}, "spec": {"versions": [V1, OLD]}}


def deployment(*more, ready=2):
    """Return the operator's Deployment with more arguments."""
    container = {"name": "muster", "image": "muster", "args": ["run", "--leader-elect", *more]}
    pod = {"serviceAccountName": "muster", "containers": [container]}
    return {
        "metadata": {"namespace": "muster-system", "name": "muster"},
        "spec": {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": {"spec": pod}},
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
        "spec": {
            "holderIdentity": "muster-1_7_ab",
            "renewTime": stamp,
            "leaseDurationSeconds": 12,
        },
    }
    ready = [{"type": "Ready", "status": "True"}]
    pod = {"metadata": {"namespace": "muster-system", "name": "muster-1"}, "spec": {}}
    node = {"conditions": ready, "allocatable": {"cpu": "4", "pods": "110"}}
    return {
        f"{APPS}/deployments": [deployment("--admission-bind-address=:9443")],
        LEASE: lease,
        f"{CRDS}/tfjobs.kubeflow.org": copy.deepcopy(CRD),
        HOOK: {"webhooks": [{"clientConfig": client}]},
        PODS: [pod],
        SLICES: [{"endpoints": [{"conditions": {"ready": True}}]}],
        "/apis/scheduling.incubator.k8s.io/v1alpha1": {
            "resources": [{"kind": "PodGroup"}, {"kind": "Queue"}]
        },
        "/api/v1/nodes": [{"metadata": {"name": "n1"}, "status": node}],
    }


class Server:
    """Answers from what is installed; refuses paths that match `forbidden`."""

    namespace = "team"

    def __init__(self, there, *, forbidden="^$", granted=lambda _asked: True):
        self.there, self.forbidden, self.granted = there, re.compile(forbidden), granted
        self.accounts, self.powerless = set(), set()

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
        return {"metadata": {}, "items": found} if isinstance(found, list) else found

    async def create(self, path, review, _urgency):
        """Answer an access review."""
        self._look(path)
        user = review["spec"].get("user")
        self.accounts.add(user)
        may = user not in self.powerless and self.granted(review["spec"]["resourceAttributes"])
        return {"status": {"allowed": may}}

    async def close(self):
        """Do nothing: there is no connection."""


@pytest.fixture
def ask(monkeypatch):
    """Return a function that asks the doctor about a server; the answer is code and findings."""
    monkeypatch.setattr(doctor.crds, "documents", lambda _kinds: [CRD])

    def ask(server, *, as_json=True):
        connected(monkeypatch, server)
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
    # Whether old versions are served is the administrator's choice.
    assert ask(Server(of_versions(V1, {**OLD, "served": False}))) == (0, [])


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
WAITS = tfjob(Worker=1, policy={"schedulingPolicy": {"queue": "gold"}})
WAITS["metadata"] |= {"namespace": "team", "uid": "u"}


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (without(f"{APPS}/deployments", LEASE), "no operator is installed"),
        (without(f"{CRDS}/tfjobs.kubeflow.org"), "no CRD tfjobs.kubeflow.org"),
        (of_versions({**V1, "schema": {"a": 0}}), "v1 has another schema"),
        (of_versions({**V1, "served": False}), "v1 is not served"),
        (of_versions(V1), "no version v1beta2"),
        (
            {**installed(), f"{APPS}/deployments": [deployment(ready=0)], PODS: [PULLS]},
            "is ready: ErrImagePull: a b",
        ),
        ({**installed(), f"{APPS}/deployments": [deployment("--oops")]}, "unknown flag --oops"),
        ({**installed(), SLICES: []}, "nobody is behind the service"),
        (changed(HOOK, webhooks=[{"clientConfig": {"caBundle": "no"}}]), "no certificate"),
        ({**installed(), TFJOBS: [WAITS]}, "there is no queue gold"),
        (changed(LEASE, spec={"holderIdentity": ""}), "nobody leads"),
    ],
)
def test_what_is_broken_is_told(ask, there, words):
    """As the server shows it."""
    _, found = ask(Server(there))
    assert words in " ".join(one["what"] for one in found)


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


def test_account_without_permissions_gets_an_error(ask):
    """Essential checks that cannot be made are errors; each finding names the permission."""
    code, found = ask(Server(installed(), forbidden="."))
    assert code == 2
    assert {one["severity"] for one in found} == {"error", "unknown"}
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
    assert "nothing is wrong" not in text
    assert text.startswith("error    not checked: ")


class Refuses(Server):
    """A server that answers every request with the same error."""

    def __init__(self, code):
        super().__init__({})
        self.code = code

    def _look(self, path):
        raise ApiError(self.code, "Reason", f"{path}: no", None)


@pytest.mark.parametrize("error", [429, 500, 503])
def test_server_that_refuses_everything_is_an_error(ask, error):
    """Exit code 2 and no report that nothing is wrong."""
    code, text = ask(Refuses(error), as_json=False)
    assert code == 2
    assert "nothing is wrong" not in text
    assert "error    not checked: operator, arguments, leader" in text


def test_expired_credentials_are_reported_once(ask):
    """With 401 no request can succeed, so that the first error ends the command."""
    with pytest.raises(ApiError, match="/version: no"):
        ask(Refuses(401))
    assert ApiError in questions.FAILURES


@pytest.mark.parametrize(
    ("unread", "code"), [("/nodes$", 2), (LEASE, 2), ("customres", 2), (HOOK, 0)]
)
def test_unread_essential_is_an_error(ask, unread, code):
    """The operator, its leader, the CRDs and the nodes are essential, the webhook is not."""
    assert ask(Server(installed(), forbidden=unread))[0] == code


def test_who_may_look_into_his_namespace_sees_his_jobs(ask):
    """The check of queues sees the jobs of that namespace."""
    there = {**installed(), "/apis/kubeflow.org/v1/namespaces/team/tfjobs": [WAITS]}
    _, found = ask(Server(there, forbidden=f"^{TFJOBS}$"))
    assert [one["check"] for one in found] == ["queues"]
    dispatched = copy.deepcopy(WAITS)
    dispatched["spec"]["runPolicy"]["managedBy"] = names.MANAGED_BY_MULTIKUEUE
    assert ask(Server({**installed(), TFJOBS: [dispatched]})) == (0, [])


def named(space, image, **labels):
    """Return a Deployment that somebody made in his namespace."""
    made = deployment("--namespace=team", "--oops")
    made["metadata"]["namespace"] = space
    made["spec"]["selector"]["matchLabels"] = labels
    made["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return made


@pytest.mark.parametrize(
    "forged",
    [
        named("aaa", "x/training-operator:1"),
        named("aaa", "x/kube-batch"),
        named("aaa", "muster", **LABELS),
    ],
)
@pytest.mark.parametrize("home", ["muster-system", "ops"])
def test_who_calls_himself_an_operator_needs_its_rights(ask, forged, home):
    """Labels and images are anybody's; nothing is told of it, whoever comes first by name."""
    own = deployment("--admission-bind-address=:9443")
    own["metadata"]["namespace"] = home
    server = Server({**installed(), f"{APPS}/deployments": [forged, own]})
    _, found = ask(server)
    assert "aaa/" in str(found)
    server.powerless.add("system:serviceaccount:aaa:muster")
    _, found = ask(server)
    assert "aaa/" not in str(found)
    assert "oops" not in str(found)


TEAM = {"env": [{"name": "KUBEFLOW_NAMESPACE", "value": "team"}]}


@pytest.mark.parametrize(
    "given", [{"args": ["--namespace", "team"]}, {"args": ["-namespace=other,team"]}, TEAM]
)
def test_operator_of_namespaces_needs_its_rights_there(ask, given):
    """The flag is written in every form that Go reads, or is a variable."""
    rival = named("aaa", "x/training-operator:1")
    rival["spec"]["template"]["spec"]["containers"][0] |= {"args": [], **given}
    there = {**installed(), f"{APPS}/deployments": [rival, deployment()]}
    server = Server(there, granted=lambda asked: asked.get("namespace") == "team")
    assert "aaa/" in str(ask(server)[1])


def test_operator_reads_its_namespaces_from_its_environment(ask):
    """Its roles are those of these namespaces."""
    own = deployment("--admission-bind-address=:9443")
    own["spec"]["template"]["spec"]["containers"][0] |= TEAM
    server = Server({**installed(), f"{APPS}/deployments": [own]})
    server.granted = lambda asked: asked["resource"] != "tfjobs" or "namespace" in asked
    assert ask(server) == (0, [])


def test_an_operator_without_its_roles_is_there(ask):
    """Wherever it is, unless it is not the only one."""
    own = deployment()
    own["metadata"]["namespace"] = "ops"
    server = Server({**installed(), f"{APPS}/deployments": [own]})
    server.powerless.add("system:serviceaccount:ops:muster")
    _, found = ask(server)
    text = " ".join(one["what"] for one in found)
    assert "no operator is installed" not in text
    assert "permissions of the operator are missing" in text


def runs(space, name, **spec):
    """Return a pod that runs."""
    return {"metadata": {"namespace": space, "name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("pod", "holder", "leads"),
    [
        (runs("muster-system", "muster-1"), "muster-1_7_ab", True),
        (runs("muster-system", "m" * 70), "m" * 63 + "_7_ab", True),
        (runs("muster-system", "muster-1", hostname="host"), "host.example_7_ab", True),
        (runs("muster-system", "muster-1", hostNetwork=True, nodeName="n"), "n_7_ab", True),
        (runs("muster-system", "muster-1"), "muster-10_7_ab", False),
        (runs("muster-system", "muster-1"), "\x1b[2Jall is well", False),
    ],
)
def test_who_holds_the_lease_is_looked_up(ask, pod, holder, leads):
    """Anything can be written into a Lease; what is there does not steer the terminal."""
    there = installed()
    there[LEASE]["spec"]["holderIdentity"] = holder
    code, text = ask(Server({**there, PODS: [pod]}), as_json=False)
    assert (code, "none of those leads" in text) == (0 if leads else 2, not leads)
    assert "\x1b" not in text


def test_who_may_not_read_pods_hears_what_the_lease_says(ask):
    """And that nobody looked who holds it."""
    code, found = ask(Server(installed(), forbidden=f"^{PODS}$"))
    assert (code, {one["severity"] for one in found}) == (0, {"unknown"})
    assert "who holds Leases" in str(found)


@pytest.mark.parametrize("odd", [None, 7, "odd", ["odd"], [None], {"odd": 1}])
def test_what_cannot_be_read_costs_nothing_else(ask, odd):
    """Of whatever it is: what is told of all else stays as it is."""
    there = changed(HOOK, webhooks=[{"clientConfig": {"service": {}}}])
    broken = {**there, TFJOBS: odd, "/api/v1/nodes": [{"metadata": {}, "status": odd}]}
    code, found = ask(Server({**broken, SLICES: odd, f"{CRDS}/tfjobs.kubeflow.org": {}}))
    text = " ".join(one["what"] for one in found)
    assert code == 2
    assert "no CRD tfjobs.kubeflow.org" in text
    assert "not checked: webhook" in text


def test_a_webhook_s_configuration_may_be_empty(ask):
    """The API server keeps one without webhooks."""
    there = installed()
    del there[HOOK]["webhooks"]
    _, found = ask(Server(there))
    assert "no certificate" in str(found)


def test_a_read_that_hangs_costs_nothing_else(ask):
    """It is said what was not looked at, and everything else is."""

    class Slow(Server):
        async def get(self, path, **params):
            if path == "/api/v1/nodes":
                raise TimeoutError
            return await super().get(path, **params)

    there = {**installed(), f"{APPS}/deployments": [deployment(ready=0)]}
    _, found = ask(Slow(there))
    assert "ask again: no answer came: TimeoutError" in {one["cure"] for one in found}
    assert "is ready" in found[0]["what"]


def test_by_the_command_line(ask, capsys):
    """The answer is printed, and the code is that of the findings."""
    ask(Server(installed()))
    assert cli.main(["doctor"]) == 0
    assert capsys.readouterr().out == "ok       nothing is wrong\n"
