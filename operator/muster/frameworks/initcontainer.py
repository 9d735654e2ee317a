# SPDX-License-Identifier: Apache-2.0
"""The init container of pods that start only once another pod's name resolves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import yaml

from muster.api.model import Json


@dataclass(frozen=True, slots=True)
class Waiting:
    """How a pod waits for another one, or for what it is brought."""

    image: str = "alpine:3.10"
    tries: int = 100
    """Rounds of looking for the name, 2 seconds apart."""
    template: str = ""
    """YAML list of init containers instead of the built-in one, with the placeholders
    `{{.MasterAddr}}`, `{{.InitContainerImage}}` and `{{.MaxTries}}`; empty: the built-in one."""
    delivery_image: str = "ghcr.io/kubeflow/training-v1/kubectl-delivery:latest"
    """Brings kubectl to launchers that need it."""


@lru_cache(maxsize=4096)
def containers(name: str, waiting: Waiting, address: str) -> tuple[Json, ...]:
    """Return the init containers of a pod that waits for that address.

    `name` is that of the built-in one. Raises ValueError with a sentence if the template is no
    list of containers.
    """
    if not waiting.template:
        return (_built_in(name, waiting, address),)
    text = waiting.template
    values = (
        ("MasterAddr", address),
        ("InitContainerImage", waiting.image),
        ("MaxTries", waiting.tries),
    )
    for placeholder, value in values:
        text = text.replace(f"{{{{.{placeholder}}}}}", str(value))
    try:
        made = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"the template of the init container is no YAML: {error}") from error
    named = isinstance(made, list) and all(
        isinstance(item, dict) and isinstance(item.get("name"), str) for item in made
    )
    if not named:
        raise ValueError("the template of the init container must be a list of containers")
    return tuple(made)


def _built_in(name: str, waiting: Waiting, address: str) -> Json:
    rounds = f"for round in $(seq {waiting.tries})"
    script = f"{rounds}; do nslookup {address} && exit 0; sleep 2; done; exit 1"
    return {
        "name": name,
        "image": waiting.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "resources": {
            "limits": {"cpu": "100m", "memory": "20Mi"},
            "requests": {"cpu": "50m", "memory": "10Mi"},
        },
    }
