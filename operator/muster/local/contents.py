# SPDX-License-Identifier: Apache-2.0
"""What an API server is given: CRDs, the default queue, and simulated nodes.

In a cluster that was there before, what is there already stays as it is.
"""

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

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_QUEUES = "/apis/scheduling.incubator.k8s.io/v1alpha1/queues"
DEFAULT_QUEUE = f"{_QUEUES}/default"
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
    if not options.mark or options.count:
        _make_namespace(api, options.mark)
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    version = api.get("/version")["gitVersion"]
    wanted = [nodes.document(index, options, version, now) for index in range(options.count)]
    _each(wanted, lambda node: api.create("/api/v1/nodes", node))
    done(f"{options.count} nodes written")
    crds = [doc for path in _crd_files(options.crds) for doc in _documents(path)]
    new = [crd for crd in crds if not (options.mark and _stays(api, crd, check))]
    _each(new, lambda crd: api.create(CRDS, _marked(crd, options.mark)))
    for crd in new:
        _wait(f"CRD {crd['metadata']['name']}", functools.partial(_served, api, crd), check)
    if any(crd["metadata"]["name"] == _QUEUE_CRD for crd in crds):
        _wait("the default queue", lambda: _queue_made(api, options.mark), check)
    there = f", {len(crds) - len(new)} more were there" if len(new) < len(crds) else ""
    done(f"{len(new)} CRDs{there}, default queue" if crds else "no CRDs found")
    _wait("the nodes", lambda: _nodes_ready(api, options), check)
    if not options.mark:
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


def _make_namespace(api: Client, mark: str) -> None:
    name = stages.namespace(mark)
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    api.create("/api/v1/namespaces", _marked(document, mark))


def _marked(document: Document, mark: str) -> Document:
    meta = document["metadata"]
    labels = {**meta.get("labels", {}), **({stages.MARK: mark} if mark else {})}
    return {**document, "metadata": {**meta, "labels": labels}}


def _stays(api: Client, crd: Document, check: Callable[[], None]) -> bool:
    """Say whether there is such a CRD; one that is on its way out is waited for."""
    path = f"{CRDS}/{crd['metadata']['name']}"
    found = or_none(api.get, path)
    if found and "deletionTimestamp" in found["metadata"]:
        _wait(f"the end of {path}", lambda: or_none(api.get, path) is None, check)
        return False
    return found is not None


def _served(api: Client, crd: Document) -> bool:
    spec = crd["spec"]
    for version in spec["versions"]:
        if version["served"]:
            there = or_none(api.get, f"/apis/{spec['group']}/{version['name']}")
            names = {one["name"] for one in there["resources"]} if there else set()
            if spec["names"]["plural"] not in names:
                return False
    return True


def _queue_made(api: Client, mark: str) -> bool:
    document = {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "default"},
        "spec": {"weight": 1},
    }
    if not mark:
        return or_none(api.apply, DEFAULT_QUEUE, document) is not None
    if or_none(api.get, DEFAULT_QUEUE):
        return True
    return or_none(api.create, _QUEUES, _marked(document, mark)) is not None


def _account_made(api: Client) -> bool:
    path = "/api/v1/namespaces/default/serviceaccounts/default"
    return or_none(api.get, path) is not None


def or_none(call: Callable[..., Document], *arguments: object) -> Document | None:
    """Give the answer of a call; None where there is no such thing."""
    try:
        return call(*arguments)
    except ApiError as error:
        if error.status == 404:
            return None
        raise


def _nodes_ready(api: Client, options: Options) -> bool:
    return sum(map(nodes.ready, simulated(api, options.mark))) >= options.count


def simulated(api: Client, mark: str) -> list[Document]:
    """Read the simulated nodes; `mark` as in `options.Options`."""
    selector = f"?labelSelector={stages.MARK}={mark}" if mark else ""
    found: list[Document] = api.get(f"/api/v1/nodes{selector}")["items"]
    return found


def _wait(what: str, ready: Callable[[], bool], check: Callable[[], None]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not ready():
        check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not become ready in {_SECONDS:.0f} s")
        time.sleep(0.1)
