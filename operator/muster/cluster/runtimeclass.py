# SPDX-License-Identifier: Apache-2.0
"""RuntimeClass: what it adds to a pod that names it, by the rules of admission."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.api import quantity
from muster.api.model import Json


@dataclass(frozen=True, slots=True)
class RuntimeView:
    """A RuntimeClass."""

    name: str
    overhead: Mapping[str, str] = field(default_factory=dict)
    """What a pod takes beside its containers."""
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Json, ...] = ()


Runtimes = Mapping[str, RuntimeView]
"""By name."""


def parse(document: Json) -> RuntimeView:
    """Return a RuntimeClass. ValueError for what is no quantity."""
    overhead = (document.get("overhead") or {}).get("podFixed") or {}
    scheduling = document.get("scheduling") or {}
    return RuntimeView(
        document["metadata"]["name"],
        quantity.floored(overhead),
        scheduling.get("nodeSelector") or {},
        tuple(scheduling.get("tolerations") or ()),
    )


def applied(template: Json, runtimes: Runtimes) -> Json:
    """Return the template as its pods will be created, with what their RuntimeClass adds."""
    spec = template.get("spec") or {}
    view = runtimes.get(spec.get("runtimeClassName") or "")
    if view is None:
        return template
    more: Json = {}
    if view.overhead:
        more["overhead"] = dict(view.overhead)
    if view.selector:
        more["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **view.selector}
    if view.tolerations:
        more["tolerations"] = [*(spec.get("tolerations") or ()), *view.tolerations]
    return {**template, "spec": {**spec, **more}}
