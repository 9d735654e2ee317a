# SPDX-License-Identifier: Apache-2.0
"""RuntimeClass: what it adds to a pod that names it, by the rules of admission."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.api import quantity
from muster.api.model import Json
from muster.api.reasons import Reason
from muster.scheduler.model import Refusal


@dataclass(frozen=True, slots=True)
class RuntimeView:
    """A RuntimeClass."""

    name: str
    overhead: Mapping[str, str] = field(default_factory=dict)
    """What a pod takes beside its containers."""
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Json, ...] = ()
    unreadable: str = ""
    """Why nothing else is known of it."""


Runtimes = Mapping[str, RuntimeView] | None
"""By name; None: nobody here knows which there are."""


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
    view = (runtimes or {}).get(spec.get("runtimeClassName") or "")
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


def obstacle(role: str, written: Json, runtimes: Runtimes) -> Refusal | None:
    """Return why the API server would take no pod of that template, as it is written, or None."""
    spec = written.get("spec") or {}
    name = spec.get("runtimeClassName") or ""
    if runtimes is None or not name:
        return None
    view = runtimes.get(name)
    if view is None:
        text = f'RuntimeClass "{name}", which {role} names, does not exist'
        return Refusal(Reason.RUNTIME_CLASS_NOT_FOUND, text)
    if view.unreadable:
        text = f'RuntimeClass "{name}" cannot be read: {view.unreadable}'
        return Refusal(Reason.UNREADABLE, text)
    asked = spec.get("nodeSelector") or {}
    for label, value in view.selector.items():
        if asked.get(label, value) != value:
            text = f'{role} asks for nodes with {label}={asked[label]}, RuntimeClass "{name}" for'
            return Refusal(Reason.NO_MATCHING_NODE, f"{text} {label}={value}")
    return None
