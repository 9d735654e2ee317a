# SPDX-License-Identifier: Apache-2.0
"""`muster bundle`: what is in the file, with and without a cluster, and what never is."""

import json
import tarfile
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster import cli
from muster.commands import bundle, live
from muster.kube import client
from muster.kube.auth import ConfigurationError
from muster.kube.client import ApiError
from support.apiserver.read_only import Served, job
from support.builders.scheduler import make_node

SECRET = "hunter2-hunter2"


class Cluster(Served):
    """Says its version, too."""

    async def get(self, path, **params):
        """Return it, the operator's Deployment, or a list."""
        if path.endswith("/deployments"):
            container = {"args": ["--gang-scheduler-name=embedded", f"--token={SECRET}"]}
            spec = {"template": {"spec": {"containers": [container]}}}
            return {
                "metadata": {"resourceVersion": "1"},
                "items": [{"metadata": {}, "spec": spec}],
            }
        return {"gitVersion": "v1"} if path == "/version" else await super().get(path, **params)


def written(file, *documents, words=()):
    """Return the code of the command on a cluster of these, and the parts of its file."""

    async def connect(*_args):
        if not documents:
            raise ConfigurationError("nobody is there")
        return Cluster(*documents)

    with mock.patch.object(live, "connect", connect):
        code = cli.main(["bundle", "-o", str(file), *words])
    with tarfile.open(file) as archive:
        found = {each.name.partition("/")[2]: each for each in archive.getmembers()}
        return code, {name: archive.extractfile(e).read().decode() for name, e in found.items()}


PLACES = (
    lambda pod, meta: pod["containers"][0].update(env=[{"name": "TOKEN", "value": SECRET}]),
    lambda pod, meta: pod["containers"][0].update(args=["--token", SECRET], command=[SECRET]),
    lambda pod, meta: pod["containers"][0].update(
        livenessProbe={"httpGet": {"httpHeaders": [{"name": "Authorization", "value": SECRET}]}}
    ),
    lambda pod, meta: pod.update(volumes=[{"name": "v", "csi": {"volumeAttributes": {
        "name": SECRET, "password": SECRET}},
        "flexVolume": {"driver": "d", "options": {"kind": SECRET}}}]),
    lambda pod, meta: pod.update(hostname=SECRET),
    lambda pod, meta: meta.update(annotations={"kind": SECRET, "limits": SECRET, "x": SECRET}),
    lambda pod, meta: meta.update(labels={"name": SECRET}),
    lambda pod, meta: meta.update(managedFields=[{"fieldsV1": {"f:x": SECRET}}]),
)  # fmt: skip
"""Where people put what nobody else is to know."""


@settings(max_examples=12)
@given(st.sets(st.sampled_from(PLACES), min_size=1))
def test_no_secret_is_in_it(tmp_path_factory, places):
    """Wherever a job carries one; what it is called and asks for is there."""
    document = job(workers=2, cpu="3")
    pod = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    for put in places:
        put(pod, document["metadata"])
    refused = f'Pod "mnist-worker-0" is invalid: args[0]: Invalid value: "{SECRET}"'
    document["status"] = {"firstFailure": {"pod": "mnist-worker-0", "message": SECRET}}
    document["status"] |= {"reason": refused, "gang": {"summary": f"0/2 placed: {refused}"}}
    file = tmp_path_factory.mktemp("bundle") / "b.tar.gz"
    file.touch(0o644)
    code, parts = written(file, {"kind": "Node", **make_node()}, document)
    assert code == 0
    assert SECRET not in "".join(parts.values())
    (told,) = json.loads(parts["jobs.json"])
    container = told["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert container["resources"] == {"requests": {"cpu": "3"}}
    assert (told["metadata"]["name"], told["status"]["firstFailure"]["message"]) == ("mnist", "…")
    assert json.loads(parts["versions.json"])["server"] == {"gitVersion": "v1"}
    assert json.loads(parts["operator.json"])[0]["flags"] == ["--gang-scheduler-name=embedded"]
    assert json.loads(parts["snapshot.json"])
    assert file.stat().st_mode & 0o077 == 0


def test_what_is_missing_is_said(tmp_path, capsys):
    """No cluster, no operator: a file all the same."""
    code, parts = written(tmp_path / "b.tar.gz", words=["--from", "http://127.0.0.1:1"])
    assert code == 1
    assert parts.keys() == {"missing.txt"}
    assert "nobody is there" in parts["missing.txt"]
    assert "running-0-debug-decisions: " in capsys.readouterr().err


@pytest.mark.parametrize(("served", "missing"), [("/metrics", ""), ("/x", "running-0: http")])
def test_an_address_need_not_serve_all(tmp_path, monkeypatch, served, missing):
    """Metrics have one of their own; one that serves nothing of a running operator is told."""

    async def fetch(url):
        if url.endswith(served):
            return "m 1.0\n"
        raise ApiError(404, "NotFound", "404: Not Found", None)

    monkeypatch.setattr(client, "fetch", fetch)
    words = ("--from", "http://operator")
    code, parts = written(tmp_path / "b.tar.gz", job(workers=1), words=words)
    assert code == bool(missing)
    assert parts["missing.txt"].startswith(missing)
    assert ("running-0-metrics" in parts) is not bool(missing)


def test_a_part_has_an_end(tmp_path, monkeypatch):
    """What is cut off is said."""
    monkeypatch.setattr(bundle, "LARGEST", 50)
    code, parts = written(tmp_path / "b.tar.gz", job(workers=1))
    assert code == 1
    assert all(len(text) <= 50 for name, text in parts.items() if name != "missing.txt")
    assert "snapshot.json: cut off" in parts["missing.txt"]
