# SPDX-License-Identifier: Apache-2.0
"""Fill in `stages.yaml`: what kwok does with simulated nodes and pods."""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from muster.api.model import Json

PREFIX = "local.muster.kubeflow.org/"
MARK = f"{PREFIX}cluster"
"""Label and annotation of what is put into a cluster that was there before."""
_NAMESPACE = "muster-local"

# jq. Pods that serve others until they are told to stop, unless they say otherwise: parameter
# servers, MPI workers (an SSH server), and whatever the kubelet would start again for ever.
_SERVES = (
    '(.metadata.labels["training.kubeflow.org/replica-type"] == "ps"'
    ' or ((.metadata.labels["training.kubeflow.org/operator-name"] // "" | startswith("mpi"))'
    ' and .metadata.labels["training.kubeflow.org/replica-type"] == "worker")'
    ' or .spec.restartPolicy == "Always")'
)
_ATTEMPT_JQ = (
    f'(((.metadata.annotations["{PREFIX}attempt"] // "1") | tonumber) - 1'
    " + (.status.containerStatuses[0].restartCount // 0))"
)
_RUN_SECONDS = (
    f'((.metadata.annotations["{PREFIX}run-seconds"]'
    f' // (if {_SERVES} then "forever" else "@DEFAULT@" end)) | split(",")) as $times'
    f" | $times[[{_ATTEMPT_JQ}, ($times | length) - 1] | min]"
)
_MANY = (
    f"(.metadata.annotations // {{}}"
    f' | ((.["{PREFIX}exit-codes"] // "") + (.["{PREFIX}run-seconds"] // "")) | contains(","))'
)
# Go templates. The attempt counts from 0.
_ATTEMPT = (
    f'(add (int (default "1" (get (default dict .metadata.annotations) "{PREFIX}attempt"))) -1'
    " (int (toString (index .status.containerStatuses 0).restartCount)))"
)
_COUNTER = (
    "metadata: {namespace: @NAMESPACE@, name: {{ $job := .metadata.namespace }}"
    "{{ range .metadata.ownerReferences }}{{ if .controller }}{{ $job = .uid }}{{ end }}{{ end }}"
    '{{ printf "%s.%s" $job .metadata.name | Quote }}}'
)


def namespace(mark: str) -> str:
    """Name the namespace where attempts are counted; `mark` as in `options.Options`."""
    return f"{_NAMESPACE}-{mark}" if mark else _NAMESPACE


def render(run_seconds: str, mark: str = "") -> str:
    """Render kwok's configuration, as YAML; `run_seconds`, `mark` as in `options.Options`."""
    text = resources.files(__package__).joinpath("stages.yaml").read_text()
    documents = [_fill(document, run_seconds, mark) for document in yaml.safe_load(text)]
    return "---\n".join(json.dumps(document, indent=1) + "\n" for document in documents)


def _fill(value: Json, run_seconds: str, mark: str) -> Json:
    words = {
        "@COUNTER@": _COUNTER,
        "@ATTEMPT@": _ATTEMPT,
        "@MANY@": _MANY,
        "@RUN_SECONDS@": f"({_RUN_SECONDS})",
        "@PREFIX@": PREFIX,
        "@DEFAULT@": run_seconds,
        "@NAMESPACE@": namespace(mark),
    }

    def fill(part: object) -> object:
        if isinstance(part, dict):
            return {key: fill(inner) for key, inner in part.items()}
        if isinstance(part, list):
            return [fill(inner) for inner in part]
        if isinstance(part, str):
            for word, meaning in words.items():
                part = part.replace(word, meaning)
        return part

    return {key: fill(part) for key, part in value.items()}
