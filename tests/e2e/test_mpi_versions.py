# SPDX-License-Identifier: Apache-2.0
"""Which of the two MPIJobs a job is, on a real API server that converts and adds defaults."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from muster.kube.certificates import self_signed
from support.e2e.harness import (
    PATIENCE,
    Api,
    Json,
    Operators,
    StartOperator,
    add_nodes,
    changed_crd,
    phase_of,
)
from support.e2e.jobs_in_flight import in_flight, parts, work
from support.e2e.kinds import job

pytestmark = [pytest.mark.e2e, pytest.mark.full]

KIND, NEW = "MPIJob", "MPIJob-v2beta1"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
DEFINITION = "mpijobs.kubeflow.org"
MERGE = "application/merge-patch+json"


class Label(BaseHTTPRequestHandler):
    """A mutating webhook that adds a label; without a patch the API server converts nothing."""

    def do_POST(self) -> None:
        """Allow the request, and add the label."""
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        change = [{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]
        patch = base64.b64encode(json.dumps(change).encode()).decode()
        response = {"uid": review["request"]["uid"], "allowed": True}
        response |= {"patchType": "JSONPatch", "patch": patch}
        body = json.dumps({**review, "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def webhook(api: Api, tmp_path: Path) -> Iterator[None]:
    """Register a mutating webhook for v2beta1 of MPIJobs, as Kueue does."""
    pair = self_signed("webhook", time.time(), 3600, hosts=("127.0.0.1",))
    file = tmp_path / "server.pem"
    file.write_bytes(pair.certificate + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Label)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    api.send("POST", CONFIGURATIONS, configuration(server.server_port, pair.certificate))
    wait_default(api, lambda spec: "mpiImplementation" in spec)
    yield
    api.delete(CONFIGURATIONS, "v2beta1")
    server.shutdown()
    server.server_close()
    wait_default(api, lambda spec: "mpiImplementation" not in spec)


def configuration(port: int, certificate: bytes) -> Json:
    """Return the registration of a webhook."""
    rule = {
        "apiGroups": ["kubeflow.org"],
        "apiVersions": ["v2beta1"],
        "operations": ["CREATE"],
        "resources": ["mpijobs"],
    }
    client = {
        "url": f"https://127.0.0.1:{port}/mutate",
        "caBundle": base64.b64encode(certificate).decode(),
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "v2beta1"},
        "webhooks": [
            {
                "name": "mpijobs.kueue.example",
                "clientConfig": client,
                "rules": [rule],
                "matchPolicy": "Equivalent",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


def wait_default(api: Api, question: Callable[[Json], bool]) -> None:
    """Return once that is so of a new job's spec; the API server reports no change of its own."""
    deadline = time.monotonic() + PATIENCE
    while not question(api.create(job(KIND, "probe"), "?dryRun=All")["spec"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def without_field(api: Api) -> Iterator[None]:
    """Serve a CRD from before `spec.mpiVersion` existed, as long as the block lasts."""

    def older(spec: Json) -> None:
        del spec["properties"]["mpiVersion"]
        rules = spec["x-kubernetes-validations"]
        spec["x-kubernetes-validations"] = [r for r in rules if "mpiVersion" not in r["rule"]]

    with changed_crd(api, DEFINITION, older):
        wait_default(api, lambda spec: "mpiVersion" not in spec)
        yield
    wait_default(api, lambda spec: "mpiVersion" in spec)


def is_v1(api: Api, name: str) -> None:
    """Check that the job runs by the rules of v1."""
    api.wait_pods(3, "Running", name)
    assert api.get(KIND, name)["status"]["mpiVersion"] == "v1"
    assert not api.list("Job")


def is_v2beta1(api: Api, name: str) -> None:
    """Check that the job runs by the rules of v2beta1."""
    api.wait("Job", lambda found: f"{name}-launcher" in found, what="a launcher")
    api.wait_pods(3, "Running", name)
    assert api.get(KIND, name)["status"]["mpiVersion"] == "v2beta1"


@pytest.mark.usefixtures("webhook")
@pytest.mark.parametrize("how", ["create", "apply"])
def test_job_of_v1_that_webhook_of_v2beta1_has_seen_is_of_v1(
    api: Api, start_operator: StartOperator, how: str
) -> None:
    """The API server stores the defaults of v2beta1 with it, and v2beta1 demands nothing of it."""
    add_nodes(api, {"cpu": "8"})
    document = job(KIND, "old", run="forever")
    document["spec"]["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] = "ExitCode"
    stored = getattr(api, how)(document)["spec"]
    assert (stored["mpiVersion"], stored["mpiImplementation"]) == ("v1", "OpenMPI")
    start_operator(overlay="mpi")
    is_v1(api, "old")


def through_neither(_api: Api) -> None:
    """Leave the job as it was stored."""


def through_v1(api: Api) -> None:
    """Change the job's roles through v1."""
    api.patch(KIND, "stored", {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 2}}}})
    api.patch(KIND, "stored", {"spec": {"slotsPerWorker": 2}})


def through_v2beta1(api: Api) -> None:
    """Change the job's roles through v2beta1."""
    api.patch(NEW, "stored", {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 2}}}})
    api.patch(NEW, "stored", {"spec": {"slotsPerWorker": 2}})


def replaced_through_v1(api: Api) -> None:
    """Write the whole job through v1, as kubectl replace does."""
    found = api.get(KIND, "stored")
    found["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = 2
    found["spec"]["slotsPerWorker"] = 2
    api.send("PUT", api.path(KIND, "stored"), found)


@pytest.mark.parametrize("how", ["create", "apply"])
@pytest.mark.parametrize(
    "change", [through_neither, through_v1, through_v2beta1, replaced_through_v1]
)
def test_job_stored_before_the_field_keeps_its_version(
    api: Api,
    operators: Operators,
    start_operator: StartOperator,
    change: Callable[[Api], None],
    how: str,
) -> None:
    """The default of v1, the stored version, is added to each job; its writer decides."""
    operators.stop()
    add_nodes(api, {"cpu": "8"})
    workers = 2 if change is through_neither else 1
    with without_field(api):
        getattr(api, how)(job(NEW, "stored", workers=workers, run="forever"))
        getattr(api, how)(job(KIND, "older", run="forever"))
    change(api)
    spec = api.get(NEW, "stored")["spec"]
    assert (spec["mpiVersion"], spec["mpiImplementation"]) == ("v1", "OpenMPI")
    start_operator(overlay="mpi")
    is_v2beta1(api, "stored")
    api.wait_pods(3, "Running", "older")
    assert api.get(KIND, "older")["status"]["mpiVersion"] == "v1"
    assert [job["metadata"]["name"] for job in api.list("Job")] == ["stored-launcher"]


@pytest.mark.parametrize("restored", [False, True])
def test_job_of_mpi_operator_is_taken_over_as_v2beta1(
    api: Api, operators: Operators, start_operator: StartOperator, restored: bool
) -> None:
    """A backup restores it without managed fields; then its pods decide."""
    operators.stop()
    add_nodes(api, {"cpu": "64"})
    with without_field(api):
        in_flight(api, "mpi-operator-0.8-mpijob")
    if restored:
        body = {"metadata": {"managedFields": [{}]}}
        assert "managedFields" not in api.send("PATCH", api.path(KIND, "mnist"), body, MERGE)
    assert api.get(KIND, "mnist")["spec"]["mpiVersion"] == "v1"
    before = parts(api)
    start_operator(overlay="mpi", fresh=True)
    job = api.wait_job("mnist", lambda job: job["status"].get("state") == "Running", of=KIND)
    assert job["status"]["mpiVersion"] == "v2beta1"
    assert work(parts(api)) == work(before)
    assert {phase_of(pod) for pod in api.list("Pod")} == {"Running"}
