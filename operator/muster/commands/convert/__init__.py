# SPDX-License-Identifier: Apache-2.0
"""`muster convert`: jobs as other operators know them, to those of v1 and to TrainJobs.

Rule: documents in, documents and losses out. Each kind of source is a row of `SOURCES`; what a row
does not take of a document is lost, and named with its path. Nothing here reads a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api import names
from muster.api.edge import mapping, text
from muster.api.model import Json
from muster.commands.convert import kubeflow, trainer, volcano
from muster.commands.convert.fields import Fields, Loss
from muster.commands.convert.job import rules_of
from muster.frameworks import FRAMEWORKS

_BY_SSH: Final = rules_of("MPIJob")
_TFJOB: Final = FRAMEWORKS["TFJob"]
_PYTORCH: Final = FRAMEWORKS["PyTorchJob"]


_V1ALPHA1: Final = f"{names.GROUP}/v1alpha1"
_LISTED_TF: Final = kubeflow.listed(_TFJOB, ("tfReplicaType",), "tfPort", cleanPodPolicy="Running")
VOLCANO: Final = ("batch.volcano.sh/v1alpha1", "Job")
TRAINJOB: Final = (trainer.API, "TrainJob")
SOURCES: Final[Mapping[tuple[str, str], Callable[[Fields], Json | None]]] = {
    **{(row.api_version, kind): kubeflow.mapped(row) for kind, row in FRAMEWORKS.items()},
    **{
        (f"{names.GROUP}/{version}", row.kind): kubeflow.mapped(row, version)
        for row in (_TFJOB, _PYTORCH)
        for version in ("v1beta2", "v1beta1", "v1alpha2")
    },
    (_V1ALPHA1, "TFJob"): _LISTED_TF,
    ("tensorflow.org/v1alpha1", "TfJob"): _LISTED_TF,
    (_V1ALPHA1, "PyTorchJob"): kubeflow.listed(
        _PYTORCH, ("replicaType", "pytorchReplicaType"), "masterPort"
    ),
    **{
        (f"xgboostjob.kubeflow.org/{version}", "XGBoostJob"): kubeflow.mapped(
            FRAMEWORKS["XGBoostJob"], was="xgboostjob"
        )
        for version in ("v1", "v1alpha1")
    },
    (_BY_SSH.api_version, "MPIJob"): kubeflow.mapped(_BY_SSH),
    (f"{names.GROUP}/v1alpha2", "MPIJob"): kubeflow.launcher_and_workers,
    (_V1ALPHA1, "MPIJob"): kubeflow.one_template,
    VOLCANO: volcano.read,
}
"""(apiVersion, kind) -> how it is read; a TrainJob is read with its runtime beside it."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """The documents that came of others, and what is lost."""

    documents: tuple[Json, ...]
    losses: tuple[Loss, ...]
    jobs: int
    """How many documents were jobs; all others are as they were."""


def convert(documents: Iterable[Json], *, to_trainjob: bool = False) -> Conversion:
    """Return the jobs among the documents as those of v1, or as TrainJobs with their runtimes.

    Other documents stay as they are; a job that cannot be converted is left out, with a loss.
    """
    given = tuple(documents)
    called = dict(zip(map(id, given), _called(given), strict=True))
    runtimes = [each for each in given if _is_runtime(each)]
    used, made, losses, count = list[Json](), list[Json](), list[Loss](), 0
    for document in given:
        name = called[id(document)]
        key = (text(document.get("apiVersion")), text(document.get("kind")))
        fields, found = _opened(document), None
        if key == TRAINJOB and not to_trainjob:
            runtime = next((each for each in runtimes if _refers(document, each)), None)
            beside = None if runtime is None else _opened(runtime)
            found = trainer.read(fields, beside)
            losses += fields.lost(name, trainer.REASONS)
            if beside is not None and runtime is not None:
                used.append(runtime)
                losses += beside.lost(called[id(runtime)], trainer.REASONS)
        elif key in SOURCES:
            found = SOURCES[key](fields)
            losses += fields.lost(name, volcano.REASONS if key == VOLCANO else kubeflow.REASONS)
        elif _unknown(key):
            losses.append(_loss_of(document, name))
        else:
            if to_trainjob or not _is_runtime(document):
                made.append(document)
            continue
        count += 1
        if found and to_trainjob:
            source = Fields(found)
            made += trainer.write(source)
            losses += source.lost(name, trainer.REASONS_BACK)
        elif found:
            made.append(found)
    if not to_trainjob:
        losses += [
            Loss(called[id(each)], "spec", "no TrainJob here refers to it")
            for each in runtimes
            if each not in used
        ]
    return Conversion(tuple(made), tuple(dict.fromkeys(losses)), count)


def _called(documents: Sequence[Json]) -> list[str]:
    """Name the documents by kind and name, and by their places where that does not tell them."""
    named = [_named(each) for each in documents]
    often = Counter(named)
    return [
        name
        if often[name] == 1 and not name.endswith(" ")
        else f"{name.strip()} (document {place})"
        for place, name in enumerate(named, start=1)
    ]


def _opened(document: Json) -> Fields:
    fields = Fields(document)
    fields.drop("apiVersion", "kind")
    return fields


def _named(document: Json) -> str:
    meta = mapping(document.get("metadata"))
    name = text(meta.get("name")) or text(meta.get("generateName"))
    return f"{text(document.get('kind'))} {name}"


def _is_runtime(document: Json) -> bool:
    return document.get("apiVersion") == trainer.API and document.get("kind") in trainer.RUNTIMES


def _refers(document: Json, runtime: Json) -> bool:
    """Say whether a TrainJob is of that runtime; a namespace that is not written fits any."""
    kind, name = trainer.reference(Fields(document).open("spec"))
    meta, own = mapping(runtime.get("metadata")), mapping(document.get("metadata"))
    if (runtime.get("kind"), meta.get("name")) != (kind, name):
        return False
    where = {text(meta.get("namespace")), text(own.get("namespace"))} - {""}
    return kind != trainer.RUNTIMES[0] or len(where) < 2


def _unknown(key: tuple[str, str]) -> bool:
    """Say whether a document is a job of a group whose jobs are known, and none of these."""
    groups = {version.partition("/")[0] for version, _ in SOURCES}
    return key[1].lower().endswith("job") and key[0].partition("/")[0] in groups


def _loss_of(document: Json, name: str) -> Loss:
    kind, version = document.get("kind"), document.get("apiVersion")
    known = ", ".join(version for version, of in SOURCES if of == kind)
    if not known:
        return Loss(name, "kind", f"no job of v1 is like a {kind}")
    return Loss(name, "apiVersion", f"{version} is not known", f"known are {known}")
