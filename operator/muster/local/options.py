# SPDX-License-Identifier: Apache-2.0
"""What a local cluster is asked to be: values only, parsed and checked once."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

KUBERNETES_VERSION = "1.37.1"
OLDER_VERSION = "1.36.3"
"""Can be built, too, and is what Muster is tested against where the two differ."""
KWOK_VERSION = "0.8.0"
DEFAULT_NAME = "default"
DEFAULT_NODES = 4
DEFAULT_RUN_SECONDS = "5"
MOST_NODES = 30_000
"""More than a control plane of Kubernetes supports."""
DEFAULT_SHAPES: tuple[Mapping[str, str], ...] = (
    {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4", "pods": "110"},
)
FOREVER = "forever"

_QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_LABEL = re.compile(
    r"(?P<key>([a-z0-9.-]+/)?[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?)"
    r"=(?P<value>([A-Za-z0-9]([\w.-]*[A-Za-z0-9])?)?)"
    r"(:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute))?",
)


class OptionError(argparse.ArgumentTypeError):
    """An option that cannot be meant; the message says what to write instead."""


@dataclass(frozen=True, slots=True)
class Options:
    """A cluster as asked for. `shapes` are cycled through: node i has shape i modulo their number.

    `run_seconds`: how long a simulated pod runs that does not say it itself, or `forever`.
    `tied`: the cluster is taken down as soon as the calling process ends, however it ends.
    `kubernetes_version`: None takes what is found on the machine, else `KUBERNETES_VERSION`.
    `nodes`: None is `DEFAULT_NODES` in a cluster of its own, else none.
    `kubeconfig`: of a cluster that is to be used; where no file is, the new cluster's is written.
    `native_gangs`: Kubernetes' own gangs are switched on, which are off by default.
    `endpoints`: Services get theirs. Nobody can be reached there: it may be saved.
    `mark`: set by `up`, marks all that is put into a cluster that was there before.
    `crds`: folder of the CRDs to install; by default those that come with Muster.
    `data`: etcd's folder, as a cluster left it with which this one begins: in seconds less.
    """

    name: str = DEFAULT_NAME
    nodes: int | None = None
    shapes: tuple[Mapping[str, str], ...] = DEFAULT_SHAPES
    labels: Mapping[str, str] | None = None
    taints: tuple[Mapping[str, str], ...] = ()
    kubeconfig: Path | None = None
    crds: Path | None = None
    data: Path | None = None
    kwok: bool = True
    scheduler: bool = True
    kubernetes_version: str | None = None
    run_seconds: str = DEFAULT_RUN_SECONDS
    tied: bool = False
    native_gangs: bool = False
    endpoints: bool = True
    mark: str = ""

    @property
    def count(self) -> int:
        """How many simulated nodes there are to be."""
        if self.nodes is not None:
            return self.nodes
        return 0 if self.mark else DEFAULT_NODES


def _parsed(text: str, pattern: str, wrong: str) -> str:
    """Return the first group of a full match. OptionError names the text and its mistake."""
    match = re.fullmatch(pattern, text)
    if not match:
        raise OptionError(f"{text!r} is {wrong}")
    return match[1]


def parse_name(text: str) -> str:
    """Check a cluster's name: it is part of paths and of a certificate."""
    wrong = "no cluster name: lower-case letters, digits and '-', at most 40"
    return _parsed(text, r"([a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?)", wrong)


def parse_count(text: str) -> int:
    """Read how many nodes there are to be."""
    if not text.isdecimal() or int(text) > MOST_NODES:
        raise OptionError(f"{text!r} is no number of nodes from 0 to {MOST_NODES}")
    return int(text)


def parse_shape(text: str) -> Mapping[str, str]:
    """`cpu=8,memory=32Gi,nvidia.com/gpu=4,pods=110` as resource name -> quantity."""
    shape = {"pods": "110", "ephemeral-storage": "100Gi"}
    for part in filter(None, text.split(",")):
        resource, _, quantity = part.partition("=")
        if not resource or not _QUANTITY.fullmatch(quantity):
            raise OptionError(f"{part!r} is no RESOURCE=QUANTITY, such as cpu=8 or memory=32Gi")
        shape[resource] = quantity
    for needed in ("cpu", "memory"):
        if needed not in shape:
            raise OptionError(
                f"a node needs {needed}: write {needed}=..., such as cpu=8,memory=32Gi"
            )
    return shape


def parse_labels(texts: list[str]) -> tuple[Mapping[str, str], tuple[Mapping[str, str], ...]]:
    """`k=v` gives a label, `k=v:NoSchedule` a taint (a label's value can hold no colon)."""
    labels: dict[str, str] = {}
    taints: list[Mapping[str, str]] = []
    for text in texts:
        match = _LABEL.fullmatch(text)
        if not match:
            raise OptionError(f"{text!r} is no label KEY=VALUE and no taint KEY=VALUE:NoSchedule")
        key, value, effect = match["key"], match["value"], match["effect"]
        if effect:
            taints.append({"key": key, "value": value, "effect": effect})
        else:
            labels[key] = value
    return labels, tuple(taints)


def parse_version(text: str) -> str:
    """`v1.37.1` or `1.37.1` as `1.37.1`."""
    wrong = f"no Kubernetes version; write it as in {KUBERNETES_VERSION}"
    return _parsed(text, r"v?(\d+\.\d+\.\d+(-[a-z]+\.\d+)?)", wrong)


def parse_run_seconds(text: str) -> str:
    """Check a number of seconds, or `forever` (also written -1)."""
    if text in {FOREVER, "-1"}:
        return FOREVER
    return _parsed(text, r"(\d+(\.\d+)?)", f"no number of seconds and not {FOREVER!r}")
