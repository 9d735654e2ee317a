# SPDX-License-Identifier: Apache-2.0
"""Jobs of Kubeflow's own operators, in the versions that they have had."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from muster.api.edge import mapping
from muster.api.model import Json
from muster.commands.convert import job
from muster.commands.convert.fields import Fields
from muster.frameworks import Framework, loading

FLAT: Final = (
    "cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit",
    "schedulingPolicy",
)  # fmt: skip
"""Fields of the run policy that stood at the top of the spec once."""


def mapped(framework: Framework, version: str = "v1") -> Callable[[Fields], Json]:
    """Return what reads jobs of a version."""

    def read(source: Fields) -> Json:
        meta, spec = job.metadata(source), source.open("spec")
        policy = _run_policy(spec, framework, framework.api.defaults.get(version, {}))
        known = job.fields_of(framework)
        options = {
            name: spec.pruned(name, known[name])
            for name in known
            if name not in ("runPolicy", framework.spec_field, *FLAT)
        }
        roles = dict(_roles(framework, spec.open(framework.spec_field)))
        return job.assemble(framework, meta, policy, options, roles)

    return read


def _run_policy(spec: Fields, framework: Framework, defaults: Mapping[str, object]) -> Json:
    """Take the run policy, with the fields of it that stand at the top."""
    known = job.fields_of(framework)["runPolicy"]
    said = {name: spec.take(name, object) for name in FLAT}
    policy, overruled = loading.fold(
        FLAT, {**said, "runPolicy": mapping(spec.pruned("runPolicy", known))}
    )
    for name in overruled:
        spec.lose(name, f"spec.runPolicy.{name} is there too, and goes first")
    return {**{name: defaults[name] for name in defaults if name in FLAT}, **policy}


def _roles(framework: Framework, map_: Fields) -> Iterator[tuple[str, Json]]:
    known = ", ".join(framework.api.types)
    seen = set()
    for name in map_.names():
        type_ = loading.canonical(framework, name)
        if type_ is None or type_ in seen:
            map_.lose(name, "no such role", f"{framework.kind} has {known}, each once")
            continue
        seen.add(type_)
        source = map_.open(name)
        found = job.template(source, framework)
        yield (
            type_,
            job.role(source.take("replicas", int), source.take("restartPolicy", str) or "", found),
        )
