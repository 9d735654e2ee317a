# SPDX-License-Identifier: Apache-2.0
"""What a fresh API server is given: CRDs, the default queue, and simulated nodes."""

from __future__ import annotations

import datetime as dt
import functools
import time
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from muster.local import nodes, stages
from muster.local.client import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from muster.local.client import Client, Document
    from muster.local.options import Options

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_QUEUES = "/apis/scheduling.incubator.k8s.io/v1alpha1/queues"
_QUEUE_CRD = "queues.scheduling.incubator.k8s.io"
_WRITERS = 8
_SECONDS = 120.0


def install(
    api: Client,
    options: Options,
    done: Callable[[str], None],
    check: Callable[[], None],
) -> None:
    """Fill the API server and wait until all of it can be used.

    `done` is told of each part; `check` is called while waiting and may raise.
    """
    _make_namespace(api)
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    version = api.get("/version")["gitVersion"]
    wanted = [nodes.document(index, options, version, now) for index in range(options.nodes)]
    _each(wanted, lambda node: api.create("/api/v1/nodes", node))
    done(f"{options.nodes} nodes written")
    crds = [doc for path in _crd_files(options.crds) for doc in _documents(path)]
    _each(crds, lambda crd: api.create(_CRDS, crd))
    for crd in crds:
        _wait(f"CRD {crd['metadata']['name']}", functools.partial(_served, api, crd), check)
    if any(crd["metadata"]["name"] == _QUEUE_CRD for crd in crds):
        _wait("the default queue", lambda: _queue_made(api), check)
    done(f"{len(crds)} CRDs, default queue" if crds else "no CRDs found")
    _wait("the nodes", lambda: _nodes_ready(api, options.nodes), check)
    _wait("the default service account", lambda: _account_made(api), check)
    done("nodes and controllers ready")


def _crd_files(asked: Path | None) -> list[Path]:
    here = Path(__file__).resolve()
    for folder in (asked,) if asked else (here.parent / "crds", here.parents[3] / "crds"):
        if folder.is_dir():
            return sorted(folder.glob("*.yaml"))
    return []


def _documents(path: Path) -> list[Document]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # seconds less for large schemas
    documents = yaml.load_all(path.read_text(), loader)
    return [document for document in documents if document]


def _each(documents: Iterable[Document], write: Callable[[Document], object]) -> None:
    with futures.ThreadPoolExecutor(_WRITERS) as writers:
        list(writers.map(write, documents))


def _make_namespace(api: Client) -> None:
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stages.NAMESPACE}}
    api.apply(f"/api/v1/namespaces/{stages.NAMESPACE}", document)


def _served(api: Client, crd: Document) -> bool:
    spec = crd["spec"]
    for version in spec["versions"]:
        if version["served"]:
            there = _or_none(api.get, f"/apis/{spec['group']}/{version['name']}")
            names = {one["name"] for one in there["resources"]} if there else set()
            if spec["names"]["plural"] not in names:
                return False
    return True


def _queue_made(api: Client) -> bool:
    document = {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "default"},
        "spec": {"weight": 1},
    }
    return _or_none(api.apply, f"{_QUEUES}/default", document) is not None


def _account_made(api: Client) -> bool:
    path = "/api/v1/namespaces/default/serviceaccounts/default"
    return _or_none(api.get, path) is not None


def _or_none(call: Callable[..., Document], *arguments: object) -> Document | None:
    try:
        return call(*arguments)
    except ApiError as error:
        if error.status == 404:
            return None
        raise


def _nodes_ready(api: Client, count: int) -> bool:
    return sum(nodes.ready(node) for node in api.get("/api/v1/nodes")["items"]) >= count


def _wait(what: str, ready: Callable[[], bool], check: Callable[[], None]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not ready():
        check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not become ready in {_SECONDS:.0f} s")
        time.sleep(0.1)
