# SPDX-License-Identifier: Apache-2.0
"""What the operator is made of, as CycloneDX: its packages, pinned, with hashes and licences."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast
from urllib.parse import quote

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import muster

PINS: Final = Path(__file__).resolve().parents[2] / "constraints.txt"
# What differs between the machines that the image is for.
_MACHINES: Final = ("x86_64", "aarch64")


class PartsError(Exception):
    """An image holds something else than it should."""


def pins() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return each package of constraints.txt -> its version and the SHA-256 of its files."""
    text = PINS.read_text().replace("\\\n", " ")
    found = (line.split() for line in text.splitlines() if "==" in line.split("#")[0])
    return {
        canonicalize_name(words[0].partition("==")[0]): (
            words[0].partition("==")[2].rstrip(";"),
            tuple(re.findall(r"--hash=sha256:(\w+)", " ".join(words))),
        )
        for words in found
    }


def needed() -> dict[str, list[str]]:
    """Return each package that the operator runs with -> those that it needs itself."""
    found: dict[str, list[str]] = {}
    waiting = ["muster"]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        asked = map(Requirement, metadata.requires(name) or ())
        found[name] = sorted({canonicalize_name(one.name) for one in asked if _wanted(one)})
        waiting += found[name]
    return found


def _wanted(requirement: Requirement) -> bool:
    """Say whether a package of the image needs it: Debian's Python, on one of its machines."""
    if requirement.marker is None:
        return True
    python = cast("dict[str, str]", default_environment())
    return any(
        requirement.marker.evaluate({
            **python, "sys_platform": "linux", "platform_system": "Linux", "extra": "",
            "platform_machine": machine,
        })
        for machine in _MACHINES
    )  # fmt: skip


def document(
    debian: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    python: Mapping[str, str] | None = None,
) -> str:
    """Return the SBOM, the same text for the same parts: of the wheel, or of an image.

    `debian`: what an image has of Debian, by the fields of each package; `python`: packages of
    Python that are in it, which have to be the pinned ones.
    """
    known, depends = pins(), needed()
    others = sorted(set(depends) - {"muster"})
    if python is not None:
        wanted = {name: known[name][0] for name in others} | {"muster": muster.version()}
        if differ := dict(set(python.items()) ^ set(wanted.items())):
            raise PartsError(f"the image has other packages than are pinned: {differ}")
    own = _component("muster", muster.version(), "application", ())
    parts = [_component(name, known[name][0], "library", known[name][1]) for name in others]
    references = {part["name"]: part["bom-ref"] for part in (own, *parts)}
    body = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": [*parts, *(_package(debian[name]) for name in sorted(debian))],
        "dependencies": [
            {"ref": references[name], "dependsOn": [references[one] for one in depends[name]]}
            for name in ("muster", *others)
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(body, sort_keys=True))
    return json.dumps({**body, "serialNumber": f"urn:uuid:{serial}"}, indent=1) + "\n"


def _package(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return a package of Debian."""
    name, version = fields["Package"], fields["Version"]
    reference = f"pkg:deb/debian/{name}@{quote(version)}?arch={fields['Architecture']}"
    return {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "purl": reference,
    }


def _component(name: str, version: str, kind: str, hashes: tuple[str, ...]) -> dict[str, Any]:
    reference = f"pkg:pypi/{name}@{version}"
    made: dict[str, Any] = {
        "type": kind,
        "bom-ref": reference,
        "name": name,
        "version": version,
        "purl": reference,
    }
    licence = _licence(name)
    if licence:
        made["licenses"] = [licence]
    if hashes:  # of every file that may be installed: one of them is
        made["externalReferences"] = [
            {
                "type": "distribution",
                "url": f"https://pypi.org/project/{name}/{version}/",
                "hashes": [{"alg": "SHA-256", "content": one} for one in hashes],
            }
        ]
    return made


def _licence(name: str) -> dict[str, Any]:
    """Return what a package says of its licence: an expression, or words of its own."""
    about = metadata.metadata(name)
    if "License-Expression" in about:
        return {"expression": about["License-Expression"]}
    classifiers = about.get_all("Classifier") or ()
    named = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License ::")]
    if not named and "License" in about:
        named = about["License"].splitlines()[:1]
    return {"license": {"name": named[0]}} if named else {}
