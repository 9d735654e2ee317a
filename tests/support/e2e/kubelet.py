# SPDX-License-Identifier: Apache-2.0
"""What a kubelet makes of a job's documents: environment, files, addresses and names.

The files of a pod lie under a folder of its own. Paths of its volumes, wherever its environment
or its scripts name them, are told as they are on this machine.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.commands import render
from muster.controller.model import Context
from muster.frameworks import FRAMEWORKS
from muster.gang import EMBEDDED

Json = dict[str, Any]
REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
ZONE = "cluster.local"
API_SERVER = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
"""What every pod is told of the API server."""


@dataclass(frozen=True)
class Started:
    """A container as its program finds it."""

    pod: str
    hostname: str
    ip: str
    env: Mapping[str, str]
    """All that the program sees, without a PATH."""
    root: Path
    """Where its volumes lie on this machine."""
    names: Mapping[str, str]
    """Names that the cluster's DNS knows, with the address of the pod that each leads to."""

    def network(self) -> str:
        """Return what `probes/pod.py` needs to play this pod's network."""
        return json.dumps({"hostname": self.hostname, "ip": self.ip, "names": {**self.names}})


def documents(job: Json, **context: Any) -> list[Json]:
    """Return what Muster makes for a job, in a cluster where all pods come up."""
    framework = FRAMEWORKS[job["kind"]]
    served = render.as_served(framework, job, "")
    assert list(render.problems(framework, served)) == []
    return render.objects(framework, served, EMBEDDED, Context(**context))[1:]


def start(made: Sequence[Json], folder: Path, container: str = "") -> dict[str, Started]:
    """Return this container of each pod, by the pod's name; empty: each pod's first container."""
    pods = list(_pods(made))
    block = f"127.{random.randint(1, 254)}.{random.randint(0, 254)}."
    addresses = {pod["metadata"]["name"]: f"{block}{10 + i}" for i, pod in enumerate(pods)}
    names = dict(_names(made, pods, addresses))
    started = {}
    for pod in pods:
        name = pod["metadata"]["name"]
        chosen = next(c for c in pod["spec"]["containers"] if container in ("", c.get("name")))
        root = folder / name
        paths = _mount(made, pod, chosen, root)
        hostname = pod["spec"].get("hostname", name)
        own = {"HOSTNAME": hostname, "HOME": str(root), **API_SERVER}
        env = {**own, **environment(made, pod, chosen, addresses[name])}
        told = {key: _here(value, paths) for key, value in env.items()}
        started[name] = Started(name, hostname, addresses[name], told, root, names)
    return started


def environment(made: Sequence[Json], pod: Json, container: Json, ip: str) -> dict[str, str]:
    """Return a container's variables: sources looked up, references to earlier ones replaced."""
    known: dict[str, str] = {}
    for entry in container.get("env", ()):
        if "valueFrom" in entry:
            known[entry["name"]] = _looked_up(made, pod, entry["valueFrom"], ip)
        else:
            known[entry["name"]] = expanded(entry.get("value", ""), known)
    return known


def expanded(text: str, known: Mapping[str, str]) -> str:
    """Return a text with `$(NAME)` replaced where the name is known, and `$$` as one dollar."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else known.get(found[1], found[0])

    return REFERENCE.sub(value, text)


def _looked_up(made: Sequence[Json], pod: Json, source: Json, ip: str) -> str:
    if "fieldRef" in source:
        meta = pod["metadata"]
        fields = {
            "status.podIP": ip,
            "metadata.name": meta["name"],
            "metadata.namespace": meta["namespace"],
        }
        return fields[source["fieldRef"]["fieldPath"]]
    reference = source["configMapKeyRef"]
    value: str = _one(made, "ConfigMap", reference["name"])["data"][reference["key"]]
    return value


def _pods(made: Sequence[Json]) -> Iterator[Json]:
    """Yield the pods, and one for each batch Job, under its name."""
    for document in made:
        if document["kind"] == "Pod":
            yield document
        elif document["kind"] == "Job":
            template = document["spec"]["template"]
            own = {key: document["metadata"][key] for key in ("name", "namespace")}
            yield {**template, "metadata": {**template["metadata"], **own}}


def _names(
    made: Sequence[Json], pods: Sequence[Json], addresses: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield what the DNS of the cluster answers about headless services and their pods."""
    for service in (document for document in made if document["kind"] == "Service"):
        assert service["spec"]["clusterIP"] == "None"
        name, space = (service["metadata"][key] for key in ("name", "namespace"))
        ends = ("", f".{space}", f".{space}.svc", f".{space}.svc.{ZONE}")
        behind = [pod for pod in pods if _selects(service["spec"]["selector"], pod)]
        for pod in behind:
            address = addresses[pod["metadata"]["name"]]
            spec = pod["spec"]
            if len(behind) == 1:
                yield from ((f"{name}{end}", address) for end in ends)
            if spec.get("subdomain") == name:
                yield from ((f"{spec['hostname']}.{name}{end}", address) for end in ends)


def _selects(selector: Json, pod: Json) -> bool:
    return selector.items() <= pod["metadata"]["labels"].items()


def _mount(made: Sequence[Json], pod: Json, container: Json, root: Path) -> dict[str, str]:
    """Write the files of a container's volumes; return where each mount is on this machine."""
    root.mkdir(parents=True)
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", ())}
    paths = {}
    for mount in container.get("volumeMounts", ()):
        volume = volumes[mount["name"]].get("configMap")
        if "subPath" in mount:
            # A single file, which no test reads where it is mounted.
            continue
        folder = root / mount["mountPath"].lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        paths[mount["mountPath"]] = str(folder)
        if volume:
            data = _one(made, "ConfigMap", volume["name"])["data"]
            _write(folder, data, volume.get("items") or [{"key": k, "path": k} for k in data])
    for file in (file for folder in paths.values() for file in Path(folder).iterdir()):
        mode = file.stat().st_mode
        file.chmod(0o600)
        file.write_text(_here(file.read_text(), paths))
        file.chmod(mode)
    return paths


def _write(folder: Path, data: Mapping[str, str], items: Sequence[Json]) -> None:
    for item in items:
        file = folder / item["path"]
        file.write_text(data[item["key"]])
        file.chmod(item.get("mode", 0o644))


def _here(text: str, paths: Mapping[str, str]) -> str:
    for path, place in paths.items():
        text = re.sub(rf"(?<![\w./-]){re.escape(path)}(?=/|$)", place, text)
    return text


def _one(made: Sequence[Json], kind: str, name: str) -> Json:
    (found,) = (d for d in made if d["kind"] == kind and d["metadata"]["name"] == name)
    return found
