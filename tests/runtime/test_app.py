# SPDX-License-Identifier: Apache-2.0
"""The operator as a process: when a signal ends it."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from muster.kube.client import Kube
from muster.runtime import app
from muster.runtime.app import Operator
from muster.runtime.front import Front
from muster.settings import Settings
from muster.store.jobs import DocumentLimits
from support.builders.scheduler import make_node

PATIENCE = 60.0
PROMPTLY = 10.0
"""Seconds in which it ends; the machine may be busy."""


class Permits(BaseHTTPRequestHandler):
    """Permits all that is asked first, and does not answer when it is asked about jobs."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        """Answer a question about permissions, or none at all."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        about = body["spec"].get("resourceAttributes", {})
        if about.get("resource", "").endswith("jobs"):
            self.server.asked.set()
            self.server.over.wait()
        answer = json.dumps({**body, "status": {"allowed": True}}).encode()
        # Who asked may be gone.
        with contextlib.suppress(OSError):
            self.send_response(201)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    def log_message(self, *_args):
        """Say nothing."""


@pytest.fixture
def permits():
    """Give such a server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Permits) as made:
        made.asked, made.over = threading.Event(), threading.Event()
        made.handle_error = lambda *_args: None
        serving = threading.Thread(target=made.serve_forever)
        serving.start()
        yield made
        made.over.set()
        made.shutdown()
        serving.join()


def command(folder, port, health="0"):
    """Return the command that runs it with such a server."""
    config = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "c",
    }
    (folder / "config").write_text(yaml.safe_dump(config))
    addresses = ["--metrics-bind-address=0", f"--health-probe-bind-address={health}"]
    run = [sys.executable, "-m", "muster", "run", f"--kubeconfig={folder / 'config'}"]
    return [*run, *addresses]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_though_the_server_does_not_answer(permits, tmp_path, number):
    """At once and well, however often it is told to."""
    words = command(tmp_path, permits.server_port)
    with (tmp_path / "log").open("w") as log, subprocess.Popen(words, stderr=log) as process:
        assert permits.asked.wait(PATIENCE)
        told = time.monotonic()
        while process.poll() is None and time.monotonic() < told + PROMPTLY:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.005)
        process.kill()
    assert process.returncode == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


WHILE_IT_IMPORTS = """
import importlib, os
from muster import cli
importlib.import_module = lambda _name: os.kill(os.getpid(), {number})
cli.main(["run"])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_while_it_still_imports(number):
    """The first process of a container would hear of no signal that it has no handler for."""
    command = [sys.executable, "-c", WHILE_IT_IMPORTS.format(number=int(number))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_address_that_is_taken_is_one_sentence(permits, tmp_path):
    """And which it is."""
    address = f"127.0.0.1:{permits.server_port}"
    words = command(tmp_path, permits.server_port, address)
    ended = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    (line,) = ended.stderr.splitlines()
    assert ended.returncode == 2
    assert "metrics or health cannot be served" in line
    assert str(permits.server_port) in line


class Unconnected(Kube):
    """A connection that is never used."""

    def __init__(self):
        """Make it."""
        super().__init__("http://x", lambda _width: None, "m", 4)

    async def close(self):
        """Close nothing."""


def made(**settings):
    """Return an operator that is not connected to an API server."""
    kube, settings = Unconnected(), Settings(**settings)
    return Operator(settings, kube, settings.waiting(), Front(), kube)


async def test_end_of_a_pod_expedites_the_reconcile_of_its_job():
    """The status that ends the job waits behind no write of the reconcile under way."""
    operator, ended = made(), []
    operator.reconciler.on_pod_ended = ended.append
    operator.store._callbacks.ended("TFJob/team/mnist")
    assert ended == ["TFJob/team/mnist"]


async def test_unreachable_nodes_are_counted():
    """The metric has the number of nodes whose condition Ready is Unknown."""
    operator = made()
    node = make_node(name="n1")
    node["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    operator.store.put({"kind": "Node", **node})
    (gauge,) = operator.metrics.silent_nodes.collect()
    assert [sample.value for sample in gauge.samples] == [1]


async def test_added_containers_are_limited_where_a_limit_range_is():
    """Only in its namespace."""
    operator = made()
    metadata = {"name": "l", "namespace": "team", "uid": "u", "resourceVersion": "1"}
    limits = {"limits": [{"type": "Container", "min": {"cpu": "1"}}]}
    operator.store.put({"kind": "LimitRange", "metadata": metadata, "spec": limits})
    assert operator._context("team").waiting.limited
    assert not operator._context("other").waiting.limited


async def test_dry_runs_are_repeated_when_permissions_have_changed():
    """One that was not permitted would have its jobs wait for another minute."""
    operator = made()
    before = operator.store.dry_runs.changes("team")
    operator._permissions_changed()
    assert operator.store.dry_runs.changes("team") > before


async def test_readiness_lists_the_status_fields_that_crds_lack():
    """As a warning, with which the process is ready."""
    operator = made()
    operator.reconciler._unstored["TFJob"] = frozenset({"state"})
    beating = asyncio.create_task(operator._beat())
    await asyncio.sleep(0)
    beating.cancel()
    said = operator.front.health.warning
    assert said.startswith("The CRD of TFJob lacks the status fields state")


async def test_documents_of_jobs_have_the_limits_of_the_flags():
    """64 MiB for each namespace and 512 MiB in all without flags."""
    assert made().store.jobs._limits == DocumentLimits(2**26, 2**29)
    limits = made(max_job_bytes_per_namespace=3, max_job_bytes=5).store.jobs._limits
    assert limits == DocumentLimits(3, 5)


async def test_main_thread_keeps_the_lease_while_another_thread_works(monkeypatch):
    """The lease has a connection of its own, and the fence of the work falls with it."""
    found, leases = [], Unconnected()

    async def work(settings, waiting, front, connection):
        kube = Unconnected()
        leader = Operator(settings, kube, waiting, front, connection)._leader()
        found.extend((threading.get_ident(), front, kube, leader))
        return 7

    async def connect(*_):
        return leases

    monkeypatch.setattr(app, "_work", work)
    monkeypatch.setattr(app, "_connect", connect)
    assert await app._run(Settings(leader_elect=True)) == 7
    thread, front, kube, leader = found
    assert thread != threading.get_ident()
    assert (leader._kube, leader._fenced, leader._loop) == (leases, kube, front.loop)
    assert (front.loop, leader._responsive) == (asyncio.get_running_loop(), front.responsive)


async def test_leader_publishes_its_policy(monkeypatch):
    """Commands and the dashboard use the policy of the operator."""
    published, operator = [], made(home="system")

    async def publish(*given):
        published.append(given)

    async def idle(*_):
        """Do nothing."""

    monkeypatch.setattr(app.policyfile, "publish", publish)
    monkeypatch.setattr(operator, "_decide", idle)
    monkeypatch.setattr(operator.recorder, "run", idle)
    monkeypatch.setattr(operator.informers, "synced", idle)
    monkeypatch.setattr(operator.informers, "audit_jobs", idle)
    await operator._act()
    ((kube, home, policies, settings),) = published
    assert (kube, home, policies) == (operator.kube, "system", operator.policy)
    assert settings == operator.settings.published
